"""Whoever has only the proto has a client."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.integration.grpc.conftest import Running

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
async def test_a_client_made_of_the_proto_alone_gets_the_right_codes(
    running: Running, tmp_path: Path
) -> None:
    script = Path(__file__).with_name("foreign_client.py")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(script), str(ROOT / "proto"), running.server.address),
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert json.loads(out) == {
        "schedule": "OK",
        "again": "OK",
        "answer": ["foreign", "STATE_SCHEDULED", False, True],
        "invalid": "INVALID_ARGUMENT",
        "route": "INVALID_ARGUMENT",
        "batch": "OK",
        "outcomes": ["accepted"],
        "stream": "OK",
        "streamed": 1000,
        "get": "OK",
        "move": "OK",
        "version": "ABORTED",
        "cancel": "OK",
        "cancelled": "STATE_CANCELLED",
        "late": "FAILED_PRECONDITION",
        "unknown": "NOT_FOUND",
    }
