"""schemathesis tries what the OpenAPI document says, and a good deal that it does not say."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.http.conftest import Serve

CONFIG = """
hooks = "hooks"
[generation]
deterministic = true
max-examples = 6
[phases.stateful]
enabled = false
# JSON Schema cannot say "expires after due" or "not both": such input is answered 422.
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "400", "404", "409", "412", "422"]
# It would not end.
[[operations]]
include-path = "/v1/events"
enabled = false
# Each item has an outcome of its own.
[[operations]]
include-path = "/v1/messages/batch"
[operations.checks.negative_data_rejection]
expected-statuses = ["200", "207", "400", "415"]
# Whatever stands in a path is a text, and most texts are names; `limit=` is as good as none.
[[operations]]
include-path-regex = "^/v1/rooms(/|$)"
[operations.checks.negative_data_rejection]
expected-statuses = ["200", "400", "401", "403", "404", "405", "409", "415", "422"]
# A token nobody gave is well-formed and not valid.
[[operations]]
include-path = "/v1/rooms/{room}/enter"
[operations.checks.positive_data_acceptance]
expected-statuses = ["2xx", "400", "401", "404", "409", "422"]
"""
HOOKS = """
import schemathesis

@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    return value.encode("utf-8", "replace") if isinstance(value, str) else str(value).encode()
"""


@pytest.mark.slow
async def test_the_document_is_what_the_server_does(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    (tmp_path / "hooks.py").write_text(HOOKS)
    async with serve() as running:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from schemathesis.cli import schemathesis; schemathesis()",
            "--config-file",
            str(tmp_path / "schemathesis.toml"),
            "run",
            f"{running.server.url}/openapi.json",
            "--checks",
            "all",
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
