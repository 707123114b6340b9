"""`python -m systems dispatcher`: Redis, two dispatchers and two brokers, to their verdict."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys

import pytest

from tests.acceptance.commands import ROOT

pytestmark = pytest.mark.slow

PATIENCE = 300.0


async def test_everybody_enters_once_and_in_turn_and_no_event_is_over_capacity() -> None:
    values = {"rate": "40", "events": "2", "capacity": "20", "session": "500ms"}
    words = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "systems", "dispatcher", "--for", "5s", *words),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            out = (await process.communicate())[0].decode()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGINT)
    assert process.returncode == 0, out[-3000:]
    assert "dispatcher: the verdict holds" in out
    for what in ("lost", "repeated", "invalid tokens", "early, without a free slot"):
        assert re.search(rf"^  {what} +0  ok$", out, re.MULTILINE), out[-3000:]
    assert re.search(r"^  first come, first in +0 overtaken  ok$", out, re.MULTILINE)
    assert (
        len(re.findall(r"^  event-\d +\d+ of 20 slots in use at most  ok$", out, re.MULTILINE)) == 2
    )
    entered = re.search(r"^  out +([\d,]+) entered with a token", out, re.MULTILINE)
    assert entered is not None
    assert int(entered[1].replace(",", "")) > 0
    assert "Entered/s: " in out
    assert "Promotions per second: " in out
