"""A server that runs out of something, is killed while it stops, or whose loop is held up.

Each counts what was lost, early or repeated, by id.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from penstock.sim.receiver_process import run_receiver
from penstock.sim.replies import How, Reply
from tests.faults.campaign import (
    ENOUGH,
    Schedulers,
    WebhookWitness,
    arrivals,
    assert_promises,
    until_more,
)
from tests.faults.disk import make_temporary_folder
from tests.faults.test_kill_serve import CONFIG, IN_FLIGHT
from tests.integration.sqlite_files import until
from tests.servers.penstock import PenstockProcess, run_penstock

pytestmark = pytest.mark.slow


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - only their number matters


async def test_a_server_without_file_descriptors_goes_on_when_there_are_some_again(
    tmp_path: Path,
) -> None:
    chance = random.Random(11)
    async with run_receiver(tmp_path / "received.ndjson") as receiver:
        config = CONFIG.format(url=receiver.url, in_flight=IN_FLIGHT)
        async with run_penstock(tmp_path, config) as server:
            clients = Schedulers([server.url], chance)
            async with clients.running():
                await clients.more(ENOUGH)
                _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
                resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (open_files(server.pid), hard))
                await refuse_connections(server)
                await clients.more(ENOUGH // 4)  # over the connections it has
                resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (hard, hard))
                await clients.more(ENOUGH)
                async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
                    assert (await client.get("/readyz")).status_code == 200
            verdict = await arrivals(WebhookWitness(receiver), clients.acknowledged)
    assert_promises(verdict, duplicates=0)


async def refuse_connections(server: PenstockProcess) -> None:
    """New ones, until one is seen to be refused: no descriptor is left."""
    end = time.monotonic() + 300
    kept: list[asyncio.StreamWriter] = []
    try:
        while time.monotonic() < end:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                kept.append(writer)
                writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
                if not await asyncio.wait_for(reader.read(1), 2):
                    return
            except (OSError, TimeoutError):
                return
        raise AssertionError("there are always more descriptors")
    finally:
        for writer in kept:
            writer.close()


async def test_a_batch_whose_outcomes_have_no_room_is_refused_with_what_to_do(
    tmp_path: Path,
) -> None:
    """Its messages are stored all the same, and the process goes on."""
    temporary = make_temporary_folder(tmp_path)
    config = 'store = "sqlite:///a.db"\n[api]\nhttp = "127.0.0.1:@PORT@"\n'
    async with (
        run_penstock(tmp_path, config, env=temporary.environment) as server,
        httpx.AsyncClient(base_url=server.url, timeout=120) as client,
    ):

        async def put(first: int, number: int) -> httpx.Response:
            lines = "".join(f'{{"id": "m{first + n}", "delay": 3600}}\n' for n in range(number))
            kind = {"content-type": "application/x-ndjson"}
            return await client.post("/v1/messages/batch", content=lines, headers=kind)

        many = 15_000  # their outcomes are more than the megabyte that is kept in memory
        assert (await put(0, many)).status_code == 200
        temporary.fill()
        answer = await put(many, many)
        assert answer.status_code == 507
        error = answer.json()["error"]
        assert error["code"] == "no_room"
        assert "No space left on device" in error["message"]
        assert "repeat the batch with the same ids" in error["message"]
        assert (await client.get("/healthz")).status_code == 200
        again = await put(many, 1_000)
        assert again.status_code == 200
        assert again.text.count('"duplicate":true') == 1_000


async def test_a_server_killed_while_it_stops_loses_nothing(tmp_path: Path) -> None:
    """SIGTERM, and SIGKILL before sends under way have ended: as Docker does after ten seconds."""
    chance = random.Random(5)
    async with run_receiver(tmp_path / "received.ndjson") as receiver:
        config = CONFIG.format(url=receiver.url, in_flight=IN_FLIGHT)
        witness = WebhookWitness(receiver)
        async with run_penstock(tmp_path, config) as server:
            clients = Schedulers([server.url], chance)
            async with clients.running():
                await clients.more(ENOUGH)
                await receiver.always(Reply(how=How.HANG))
                await until_more(witness, len(await witness.arrivals()))
                os.kill(server.pid, signal.SIGTERM)
                await until(lambda: "stopping: no more is claimed" in server.log.read_text())
                await server.kill()
                await receiver.always(Reply())
                await server.start()
                await clients.more(ENOUGH // 4)
            verdict = await arrivals(witness, clients.acknowledged)
    assert_promises(verdict, duplicates=IN_FLIGHT)


async def until_delivered(client: httpx.AsyncClient, number: int) -> None:
    end = time.monotonic() + 300
    while True:
        states = (await client.get("/v1/stats")).json()["states"]
        if states.get("delivered", 0) >= number:
            return
        assert time.monotonic() < end, f"not delivered: {states}"
        await asyncio.sleep(0.1)


HANDLER = """
import os, time

async def handle(message):
    with open("calls.txt", "ab", buffering=0) as calls:
        calls.write(f"{message.id} {message.attempt} {os.getpid()}\\n".encode())
        if message.id == "blocks" and message.attempt == 1:
            time.sleep(5)  # not awaited: nothing else runs in this process meanwhile
            calls.write(f"{message.id} 0 {os.getpid()}\\n".encode())
"""


async def test_a_worker_whose_loop_is_held_up_longer_than_a_lease_is_fenced(tmp_path: Path) -> None:
    """Another worker takes over and sends again; what the first one says afterwards counts not."""
    (tmp_path / "handlers.py").write_text(HANDLER)
    config = """
        store = "sqlite:///a.db"
        [api]
        http = "127.0.0.1:@PORT@"
        [worker]
        lease = "1s"
        [routes.default]
        sink = "python:handlers:handle"
    """
    async with (
        run_penstock(tmp_path, config, command="api") as api,
        run_penstock(tmp_path, config, command="worker"),
        run_penstock(tmp_path, config, command="worker"),
        httpx.AsyncClient(base_url=api.url, timeout=60) as client,
    ):
        for name in ("blocks", *(f"m{n}" for n in range(200))):
            await client.post("/v1/messages", json={"id": name, "payload": 1})
        calls = tmp_path / "calls.txt"
        await until(calls.exists)
        await until(lambda: "blocks 0" in calls.read_text())
        await until_delivered(client, 201)
        blocked = (await client.get("/v1/messages/blocks")).json()
        seen = [line.split() for line in calls.read_text().splitlines()]
    pids = {attempt: pid for name, attempt, pid in seen if name == "blocks"}
    assert pids["1"] == pids["0"] != pids["2"], "the other worker sent it again"
    assert (blocked["state"], blocked["attempt"]) == ("delivered", 2)
    assert [entry["event"] for entry in blocked["timeline"]].count("delivered") == 1
    sent = Counter((name, attempt) for name, attempt, _ in seen if attempt != "0")
    assert {name for name, _ in sent} == {"blocks", *(f"m{n}" for n in range(200))}
    assert set(sent.values()) == {1}, "no attempt is made twice"
