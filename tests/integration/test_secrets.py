"""No secret and no payload is in anything a process writes; a trace goes on where it is sent."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from penstock.sim.receiver import Receiver
from penstock.sim.replies import Reply
from tests.servers.penstock import run_penstock

pytestmark = pytest.mark.slow

HUSH = "hush"
"""Begins every secret that is planted here."""
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CONFIG = """
store = "sqlite:///penstock.db"
[api]
http = "127.0.0.1:@PORT@"
tokens = ["hush-token-admin"]
[log]
level = "debug"
format = "json"
file = "penstock.log"
[routes.echo]
sink = "{url}/services/hush-path/hush-long-enough-to-be-a-secret?key=hush-query"
secret = "whsec_aHVzaC1zaWduaW5nLWtleS1odXNoLXNpZ25pbmc="
headers = {{ authorization = "Bearer hush-route" }}
max_attempts = 2
backoff = "10ms..10ms"
[routes.away]
sink = "http://hush-user:hush-password@127.0.0.1:9/hook/hush-hook"
max_attempts = 2
backoff = "10ms..10ms"
"""
MESSAGE = {
    "key": "ann",
    "payload": {"text": "hush-payload"},
    "headers": {"x-api-key": "hush-header", "authorization": "Bearer hush-caller"},
}


def settings_shown(folder: Path) -> str:
    (config,) = folder.glob("*.toml")
    command = [sys.executable, "-m", "penstock", "config", "show", "--config", str(config)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


async def test_nothing_a_process_writes_has_a_secret_or_a_payload(tmp_path: Path) -> None:
    async with (
        Receiver() as receiver,
        run_penstock(tmp_path, CONFIG.format(url=receiver.url)) as server,
        httpx.AsyncClient(base_url=server.url, timeout=300) as client,
    ):
        echo = "Cannot POST /services/hush-path/hush-long-enough-to-be-a-secret"
        receiver.always(Reply(status=500, body=f'{echo}: {{"text": "hush-payload"}}'))
        bearer = {"authorization": "Bearer hush-token-admin", "traceparent": TRACEPARENT}
        for route in ("default", "echo", "away"):
            body = {**MESSAGE, "id": f"m-{route}", "route": route}
            answer = await client.post("/v1/messages", json=body, headers=bearer)
            assert answer.status_code == 201
        assert (await client.get("/v1/stats?token=hush-wrong")).status_code == 401
        wrong = {"authorization": "Bearer hush-other"}
        assert (await client.get("/v1/stats", headers=wrong)).status_code == 401
        await client.post("/v1/messages", content=b'{"payload": hush-broken', headers=bearer)
        for _ in range(6_000):
            stats = (await client.get("/v1/stats", headers=bearer)).json()
            if stats["totals"].get("dead", 0) == 2 and stats["totals"].get("delivered") == 1:
                break
            await asyncio.sleep(0.05)
        assert stats["totals"]["dead"] == 2
        shown = (await client.get("/v1/stats", headers=bearer)).text
        for path in ("/readyz", "/v1/routes", "/metrics", "/v1/history"):
            answer = await client.get(path, headers=bearer)
            assert answer.status_code == 200
            shown += answer.text
        bare = (await client.get("/readyz")).json()
        assert bare["parts"]["sink.away"].keys() == {"status"}
        for path in ("/v1/dead/groups", "/v1/messages/m-echo", "/v1/messages/m-away"):
            found = (await client.get(path, headers=bearer)).json()
            for own in ("payload", "headers"):  # what the caller sent, its readers may see
                found.pop(own, None)
            shown += str(found).replace("hush-payload", "")
        shown += await asyncio.to_thread(settings_shown, tmp_path)
        assert "/…#" in shown
        assert await server.stop() == 0
        first = (await receiver.wait_for(1))[0]
        assert first.headers["traceparent"] == TRACEPARENT
        assert json.loads(first.body) == MESSAGE["payload"]
    written = server.log.read_text() + (tmp_path / "penstock.log").read_text()
    lines = [json.loads(line) for line in (tmp_path / "penstock.log").read_text().splitlines()]
    assert HUSH not in written
    assert not re.findall(rf".{{0,60}}{HUSH}.{{0,20}}", shown)
    (failed,) = [
        line for line in lines if line.get("message_id") == "m-echo" and line["attempt"] == 2
    ]
    assert {"timestamp", "level", "message"} <= failed.keys()
    assert (failed["route"], failed["correlation_id"]) == ("echo", TRACEPARENT.split("-")[1])
