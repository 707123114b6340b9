"""`api --processes N` and `serve --processes N`: several processes, one port."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import httpx
import psutil
import pytest
from google.protobuf.duration_pb2 import Duration

from penstock.model.state import State
from penstock.sdk.async_client import AsyncClient
from penstock.sim.receiver import Receiver
from penstock.v1 import scheduler_pb2 as pb
from penstock.v1.scheduler_pb2_grpc import SchedulerStub
from systems.servers.ports import free_port
from systems.servers.redis import RedisServer
from tests.integration.cli.test_processes import CONFIG, penstock
from tests.servers.penstock import PenstockProcess, run_penstock

pytestmark = pytest.mark.slow

TWO = ("--processes", "2")
NOWHERE = CONFIG.format(url="http://127.0.0.1:9")
ACCEPTED = re.compile(
    r'^penstock_messages_total\{process="(\d)".*stage="accepted"\} (\d+)', re.MULTILINE
)


async def said(server: PenstockProcess, words: str) -> None:
    """Until the log of it has these words."""
    for _ in range(6_000):
        if words in server.log.read_text():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{words!r} is not in\n{server.log.read_text()[-3000:]}")


@asynccontextmanager
async def two(
    folder: Path, config: str = NOWHERE, *, command: str = "api", grpc: str = "off"
) -> AsyncIterator[PenstockProcess]:
    """Two processes that serve."""
    async with run_penstock(folder, config, command=command, grpc=grpc, words=TWO) as server:
        await said(server, "processes  2")
        yield server


def children(server: PenstockProcess) -> list[psutil.Process]:
    return psutil.Process(server.pid).children()


async def each_connection(url: str, number: int, words: Callable[[int], object]) -> list[int]:
    """A message over a connection of its own each; the statuses."""

    async def one(i: int) -> int:
        async with httpx.AsyncClient(timeout=300) as client:
            return (await client.post(f"{url}/v1/messages", json=words(i))).status_code

    return await asyncio.gather(*(one(i) for i in range(number)))


async def test_both_serve_the_port_and_metrics_and_stats_are_of_both(tmp_path: Path) -> None:
    async with two(tmp_path) as server, AsyncClient(server.url) as client:
        statuses = await each_connection(server.url, 40, lambda i: {"payload": i, "delay": 60})
        assert Counter(statuses) == {201: 40}
        async with httpx.AsyncClient(timeout=300) as http:
            metrics = (await http.get(f"{server.url}/metrics")).text
        by_process = {name: int(count) for name, count in ACCEPTED.findall(metrics)}
        assert sorted(by_process) == ["1", "2"]
        assert sum(by_process.values()) == 40
        assert metrics.count("penstock_pending_messages{") == 1, "the store's figures, once"
        assert metrics.count("# TYPE penstock_messages_total ") == 1
        for _ in range(6_000):
            stats = await client.stats()
            if stats.totals.get("accepted") == 40:
                break
            await asyncio.sleep(0.05)
        assert stats.totals["accepted"] == 40
        assert len(stats.processes) == 2
        assert await server.stop() == 0
    assert server.log.read_text().count('"stopped"') == 2


async def test_grpc_is_served_on_one_port_too(tmp_path: Path) -> None:
    where = f"127.0.0.1:{free_port()}"
    async with two(tmp_path, grpc=where) as server:
        assert where in server.log.read_text()
        for i in range(8):  # each on a channel, and so a connection, of its own
            options = [("grpc.use_local_subchannel_pool", 1)]
            async with grpc.aio.insecure_channel(where, options=options) as channel:
                request = pb.ScheduleRequest(id=f"g{i}", payload=b"1", delay=Duration(seconds=60))
                assert (await SchedulerStub(channel).Schedule(request)).id == f"g{i}"
        async with AsyncClient(server.url) as client:
            assert (await client.get("g7")).id == "g7"


async def test_sighup_replaces_them_one_by_one_and_no_request_fails(tmp_path: Path) -> None:
    async with two(tmp_path) as server:
        before = {child.pid for child in children(server)}
        failed: list[object] = []
        taken = 0
        replaced = asyncio.Event()

        async def keep_calling(name: int) -> None:
            nonlocal taken
            while not replaced.is_set():
                try:
                    async with httpx.AsyncClient(timeout=30) as client:
                        body = {"payload": name, "delay": 60}
                        answer = await client.post(f"{server.url}/v1/messages", json=body)
                        taken += answer.status_code == 201
                        if answer.status_code != 201:
                            failed.append(answer.text)
                except httpx.HTTPError as exc:
                    failed.append(exc)

        callers = [asyncio.create_task(keep_calling(i)) for i in range(4)]
        server.send(signal.SIGHUP)
        await said(server, "process 2 was replaced")
        replaced.set()
        await asyncio.gather(*callers)
        assert not failed
        async with AsyncClient(server.url) as client:
            assert (await client.stats()).states[State.SCHEDULED] == taken
        after = {child.pid for child in children(server)}
        assert len(after) == 2
        assert not before & after


async def test_a_replacement_that_cannot_start_leaves_the_old_ones_serving(tmp_path: Path) -> None:
    async with two(tmp_path) as server:
        before = {child.pid for child in children(server)}
        server._config.write_text("[api]\nmax_body = 1\n")
        server.send(signal.SIGHUP)
        await said(server, "the old ones go on")
        assert "api.max_body" in server.log.read_text()
        assert {child.pid for child in children(server)} == before
        statuses = await each_connection(server.url, 10, lambda i: {"payload": i, "delay": 60})
        assert set(statuses) == {201}


async def test_one_that_is_killed_is_started_again(tmp_path: Path) -> None:
    async with two(tmp_path) as server:
        victim = children(server)[0]
        victim.kill()
        await said(server, "was killed by SIGKILL; another is started in")
        # What falls to the one that is away waits in its socket until there is another.
        async with httpx.AsyncClient(timeout=60) as client:
            for i in range(10):
                body = {"payload": i, "delay": 60}
                connection = {"connection": "close"}
                answer = await client.post(
                    f"{server.url}/v1/messages", json=body, headers=connection
                )
                assert answer.status_code == 201
        now = {child.pid for child in children(server)}
        assert len(now) == 2
        assert victim.pid not in now


async def test_they_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    async with two(tmp_path) as server:
        orphans = children(server)
        await server.kill()
        gone, alive = await asyncio.to_thread(psutil.wait_procs, orphans, 300)
        assert (len(gone), alive) == (2, [])
    assert server.log.read_text().count("this one stops too") == 2


async def test_serving_processes_send_each_message_once(tmp_path: Path) -> None:
    async with Receiver() as receiver:
        with RedisServer() as redis:
            config = CONFIG.format(url=receiver.url).replace("sqlite:///penstock.db", redis.url)
            async with two(tmp_path, config, command="serve") as server:

                def words(i: int) -> object:
                    return {"id": f"m{i}", "route": "hook", "payload": i, "delay": 0.5}

                assert set(await each_connection(server.url, 60, words)) == {201}
                arrived = await receiver.wait_for(60)
                assert sorted(one.id for one in arrived) == sorted(f"m{i}" for i in range(60))
                async with AsyncClient(server.url) as client:
                    processes = (await client.stats()).processes
                assert [one.role for one in processes] == ["serve"] * 2
                assert await server.stop() == 0
        assert len(receiver.received) == 60


@pytest.mark.parametrize("words", [("api", *TWO), ("api",), ("worker",)])
@pytest.mark.parametrize("store", ["memory://", "sqlite://"])
async def test_a_store_of_one_process_is_refused(
    tmp_path: Path, store: str, words: tuple[str, ...]
) -> None:
    code, _, err = await penstock(tmp_path, *words, "--store", store)
    assert code == 2
    assert "an in-memory store belongs to one process" in err


async def test_a_port_of_another_program_is_not_shared(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        where = f"127.0.0.1:{other.getsockname()[1]}"
        code, _, err = await penstock(tmp_path, "api", *TWO, "--http", where)
        assert code == 2
        assert f"{where} is taken" in err
        words = ("--http", f"127.0.0.1:{free_port()}", "--grpc", where)
        code, _, err = await penstock(tmp_path, "api", *TWO, *words)
        assert code == 2
        assert f"api.grpc: {where} is taken" in err


async def test_a_start_that_fails_is_told_once(tmp_path: Path) -> None:
    code, out, err = await penstock(tmp_path, "api", *TWO, "--http", f"0.0.0.0:{free_port()}")
    assert (code, out) == (2, "")
    assert err.count("without tokens") == 1


async def test_their_own_metrics_need_a_port_each(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('[api]\nmetrics = "127.0.0.1:9301"\n')
    code, _, err = await penstock(tmp_path, "api", *TWO)
    assert code == 2
    assert "need a range of at least 3 ports" in err


async def test_each_writes_a_log_file_of_its_own(tmp_path: Path) -> None:
    config = f'{NOWHERE}\n[log]\nfile = "{tmp_path}/penstock.log"\n'
    async with two(tmp_path, config) as server:
        assert await server.stop() == 0
    for number in (1, 2):
        assert f'"process":{number}' in (tmp_path / f"penstock.{number}.log").read_text()
