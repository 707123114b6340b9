"""`make ticks`: the whole system by one command, in a pipe, to its verdict."""

from __future__ import annotations

import asyncio
import re
import sys

import pytest

from systems.spec import ROOT, read_spec

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("kafka_process")  # left out where only the stand-in can be had
async def test_the_ticks_system_runs_whole_and_its_verdict_holds() -> None:
    runner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "systems", "ticks", "--for", "4s", "--set", "rate=300"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await runner.communicate()
    said = out.decode()
    assert runner.returncode == 0, said
    spec = read_spec("ticks")
    named = {line.split("|")[0].strip() for line in said.splitlines() if " | " in line}
    processes = {name for process in spec.process for name in process.names}
    assert named == {"systems", "rates", *processes}
    costs = re.findall(r"^(\S+) +\d+% +[\d,]+ MB$", said, re.MULTILINE)
    assert set(costs) >= processes
    assert re.search(r"^rates +\| Generated ticks/s: [\d,]+ · ", said, re.MULTILINE)
    rows = dict(re.findall(r"^  (in|out|lost|early|repeated|late) +(.+)$", said, re.MULTILINE))
    assert int(rows["in"].split()[0].replace(",", "")) > 0
    assert rows["in"].split()[0] == rows["out"].split()[0]
    assert (rows["lost"], rows["early"]) == ("0  ok", "0  ok")
    assert re.match(r"p50 [\d,]+ ms, p99 [\d,]+ ms", rows["late"])
    assert said.endswith("ticks: the verdict holds\n")
    assert "\x1b" not in said, "no colours in a pipe"
