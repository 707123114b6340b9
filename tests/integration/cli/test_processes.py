"""`serve`, `api` and `worker` as processes of their own: started, used, stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf.duration_pb2 import Duration

from penstock import open as penstock_open
from penstock.model.state import State
from penstock.sdk.async_client import AsyncClient
from penstock.sim.receiver import Receiver
from penstock.sim.replies import Reply
from penstock.v1 import scheduler_pb2 as pb
from penstock.v1.scheduler_pb2_grpc import SchedulerStub
from systems.servers.ports import free_port
from tests.servers.penstock import run_penstock

pytestmark = pytest.mark.slow

CONFIG = """
store = "sqlite:///penstock.db"
[api]
http = "127.0.0.1:@PORT@"
[worker]
shutdown = "5s"
[routes.hook]
sink = "{url}/hook"
semaphore_limit = 16
backoff = "50ms..200ms"
"""


async def penstock(folder: Path, *args: str) -> tuple[int, str, str]:
    """Run one command to its end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "penstock", *args),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_a_server_says_where_it_is_and_what_to_try(tmp_path: Path) -> None:
    async with run_penstock(tmp_path, CONFIG.format(url="http://127.0.0.1:9")) as server:
        said = server.log.read_text()
        assert f"{server.url}/" in said
        assert f"curl -s {server.url}/v1/messages" in said
        assert await server.stop() == 0
    assert "stopped" in server.log.read_text()


async def test_the_command_line_acts_on_a_running_server(tmp_path: Path) -> None:
    async with (
        Receiver() as receiver,
        run_penstock(tmp_path, CONFIG.format(url=receiver.url)) as server,
    ):
        args = ("schedule", "hook", "--payload", '{"a": 1}', "--id", "m1", "--url", server.url)
        code, out, err = await penstock(tmp_path, *args, "--json")
        assert (code, err) == (0, "")
        assert json.loads(out)["id"] == "m1"
        (arrived,) = await receiver.wait_for(1)
        assert (arrived.id, arrived.body) == ("m1", b'{"a": 1}')


async def test_a_message_put_into_the_file_is_released_by_a_worker_beside(tmp_path: Path) -> None:
    async with Receiver() as receiver:
        config = CONFIG.format(url=receiver.url)
        (tmp_path / "penstock.toml").write_text(config.replace("@PORT@", "8700"))
        async with run_penstock(tmp_path, config, command="worker") as worker:
            code, _, err = await penstock(tmp_path, "schedule", "hook", "--id", "m1")
            assert (code, err) == (0, "")
            (arrived,) = await receiver.wait_for(1)
            assert await worker.stop() == 0
    assert arrived.id == "m1"


async def test_an_api_alone_accepts_and_releases_nothing(tmp_path: Path) -> None:
    async with run_penstock(
        tmp_path, CONFIG.format(url="http://127.0.0.1:9"), command="api"
    ) as server:
        assert "penstock worker" in server.log.read_text()
        async with AsyncClient(server.url) as client:
            await client.schedule(1, id="m1")
            (route,) = [r for r in await client.routes() if r.name == "default"]
            assert (route.scheduled, route.in_flight) == (1, None)


async def test_a_port_that_is_taken_exits_2_with_one_sentence(tmp_path: Path) -> None:
    async with Receiver() as receiver:
        code, out, err = await penstock(tmp_path, "serve", "--http", f"127.0.0.1:{receiver.port}")
    assert (code, out) == (2, "")
    assert f"127.0.0.1:{receiver.port} is taken" in err
    assert "Traceback" not in err


async def test_an_open_bind_without_tokens_is_refused(tmp_path: Path) -> None:
    code, _, err = await penstock(tmp_path, "serve", "--http", f"0.0.0.0:{free_port()}")
    assert code == 2
    assert "--insecure" in err


async def test_sigterm_under_load_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Everything acknowledged before, during and after the signal arrives in the end."""
    acknowledged: set[str] = set()

    async def schedule(url: str, name: str) -> None:
        async with AsyncClient(url, retries=0) as client:
            for number in range(10_000):
                try:
                    receipt = await client.schedule(1, route="hook", id=f"{name}-{number}")
                except Exception:  # noqa: BLE001 - the server is going away: not acknowledged
                    return
                acknowledged.add(receipt.id)

    async with Receiver() as receiver:
        receiver.always(Reply(delay=0.02))
        async with run_penstock(tmp_path, CONFIG.format(url=receiver.url)) as server:
            load = [asyncio.create_task(schedule(server.url, f"c{n}")) for n in range(8)]
            await receiver.wait_for(100)
            assert await server.stop() == 0
            await asyncio.gather(*load)
            await server.start()
            async with AsyncClient(server.url) as client:
                while (await _delivered(client)) < len(acknowledged):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.05)
        arrived = [request.id for request in receiver.received]
    assert acknowledged <= set(arrived)
    assert len(arrived) == len(set(arrived)), "an orderly stop repeats nothing"


async def _delivered(client: AsyncClient) -> int:
    return (await client.stats()).states.get(State.DELIVERED, 0)


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    async with Receiver() as receiver:
        receiver.always(Reply(delay=30))
        config = CONFIG.format(url=receiver.url).replace('"5s"', '"60s"')
        async with run_penstock(tmp_path, config) as server:
            async with AsyncClient(server.url) as client:
                await client.schedule(1, route="hook")
            await receiver.wait_for(1)
            os.kill(server.pid, signal.SIGTERM)
            while "stopping: " not in server.log.read_text():  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
            assert await server.stop() == -signal.SIGTERM


HANGING = """
import time
from pathlib import Path

def handle(message):
    with Path("calls").open("a") as calls:
        calls.write(message.id + "\\n")
    time.sleep(600)
"""


async def test_a_function_that_hangs_in_a_thread_keeps_its_lease_and_not_the_process(
    tmp_path: Path,
) -> None:
    (tmp_path / "hanging.py").write_text(HANGING)
    config = CONFIG.replace("{url}/hook", "python:hanging:handle").replace('"5s"', '"100ms"')
    async with run_penstock(tmp_path, config) as server:
        async with AsyncClient(server.url) as client:
            await client.schedule(1, route="hook", id="m")
        while not (tmp_path / "calls").exists():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)
        assert await server.stop() == 0
    assert "stay leased" in server.log.read_text()
    async with penstock_open(f"sqlite:///{tmp_path}/penstock.db") as engine:
        assert (await engine.get("m")).state is State.LEASED
    assert (tmp_path / "calls").read_text() == "m\n"


async def test_grpc_is_served_beside_http_and_ends_with_it(tmp_path: Path) -> None:
    where = f"127.0.0.1:{free_port()}"
    config = CONFIG.format(url="http://127.0.0.1:9")
    async with run_penstock(tmp_path, config, grpc=where) as server:
        assert f"gRPC       {where}" in server.log.read_text()
        async with grpc.aio.insecure_channel(where) as channel:
            stub: Any = SchedulerStub(channel)
            asked = pb.ScheduleRequest(id="m1", delay=Duration(seconds=60))
            assert (await stub.Schedule(asked, wait_for_ready=True)).id == "m1"
        async with AsyncClient(server.url) as client:
            assert (await client.get("m1")).state is State.SCHEDULED
        assert await server.stop() == 0


async def test_a_grpc_port_that_was_asked_for_and_is_taken_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        http = f"127.0.0.1:{free_port()}"
        code, _, err = await penstock(tmp_path, "api", "--http", http, "--grpc", where)
    assert code == 2
    assert f"api.grpc: {where} is taken by another program" in err


@pytest.mark.parametrize("asked", [True, False])
async def test_without_the_extra_only_who_asks_for_grpc_is_told(
    tmp_path: Path, asked: bool
) -> None:
    """A folder before the others on the path, where grpc is not to be found."""
    (tmp_path / "grpc.py").write_text("raise ModuleNotFoundError('no grpc', name='grpc')")
    (tmp_path / "run.py").write_text(
        "import sys; sys.path.insert(0, '.'); from penstock.cli import main; main()"
    )
    words = ["api", "--http", f"127.0.0.1:{free_port()}", "--json"]
    if asked:
        words += ["--grpc", f"127.0.0.1:{free_port()}"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "run.py", *words),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    first = await process.stdout.readline()
    if not asked:
        assert json.loads(first)["grpc"] is None
        process.terminate()
        assert (await process.communicate(), process.returncode)[1] == 0
        return
    _, err = await process.communicate()
    assert process.returncode == 2
    assert "pip install 'penstock-engine[grpc]'" in err.decode()


async def test_a_worker_is_known_to_the_api_and_serves_its_own_metrics(tmp_path: Path) -> None:
    config = CONFIG.format(url="http://127.0.0.1:9")
    async with (
        run_penstock(tmp_path, config, command="api") as api,
        run_penstock(tmp_path, config, command="worker") as worker,
        AsyncClient(api.url) as client,
    ):
        await client.schedule({"hello": "later"}, id="m1")
        for _ in range(6_000):
            stats = await client.stats()
            if stats.totals.get("delivered") and len(stats.processes) == 2:
                break
            await asyncio.sleep(0.05)
        assert stats.totals["accepted"] == stats.totals["delivered"] == 1
        assert stats.routes["default"].capacity is not None
        found = {process.role: process for process in stats.processes}
        assert found["api"].metrics == f"{api.url}/metrics"
        assert found["worker"].pid == worker.pid
        assert found["worker"].metrics is not None
        async with httpx.AsyncClient(timeout=300) as http:
            metrics = (await http.get(found["worker"].metrics)).text
            assert 'penstock_messages_total{route="default",stage="delivered"} 1.0' in metrics
            ready = await http.get(found["worker"].metrics.replace("/metrics", "/readyz"))
            assert ready.json()["parts"]["worker"]["status"] == "ok"
        await worker.stop()
        after = await client.stats()
        assert after.totals["delivered"] == 1, "what a stopped process counted is not lost"


async def test_a_metrics_port_that_is_taken_is_a_clear_error(tmp_path: Path) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        (tmp_path / "penstock.toml").write_text(f'[worker]\nmetrics = "127.0.0.1:{port}"\n')
        code, _, err = await penstock(tmp_path, "worker")
    assert code == 2
    assert f"worker.metrics: 127.0.0.1:{port} is taken by another program" in err
