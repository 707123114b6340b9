"""The simulated receiver keeps its address, and runs as a process too."""

from pathlib import Path

import aiohttp
import pytest

from penstock.sim.receiver import Receiver
from penstock.sim.receiver_process import run_receiver
from penstock.sim.replies import Reply


async def test_it_keeps_its_address_while_it_is_down() -> None:
    async with Receiver() as receiver, aiohttp.ClientSession() as session:
        await receiver.down()
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.post(receiver.url)
        await receiver.up()
        await receiver.up()
        async with session.post(receiver.url + "/x", data=b"1") as response:
            assert response.status == 200
        assert [request.path for request in receiver.received] == ["/x"]


async def test_replies_are_used_up_in_order_then_as_always() -> None:
    async with Receiver() as receiver, aiohttp.ClientSession() as session:
        receiver.always(Reply(status=418))
        receiver.then(Reply(status=500), Reply(status=202))
        statuses = []
        for _ in range(3):
            async with session.post(receiver.url, data=b"1") as response:
                statuses.append(response.status)
        assert statuses == [500, 202, 418]


@pytest.mark.slow
async def test_as_a_process_it_records_into_a_file_and_takes_orders(tmp_path: Path) -> None:
    record = tmp_path / "received.ndjson"
    headers = {"penstock-id": "a", "penstock-attempt": "3"}
    async with run_receiver(record) as receiver, aiohttp.ClientSession() as session:
        async with session.post(receiver.url, data=b"\xff", headers=headers) as response:
            assert response.status == 200
        await receiver.always(Reply(status=503))
        async with session.post(receiver.url, data=b"2") as response:
            assert response.status == 503
        async with session.put(receiver.url + "/_reply", data=b'{"howl":1}') as response:
            assert response.status == 400
        assert [(r.id, r.attempt, r.body) for r in receiver.received()] == [
            ("a", 3, b"\xff"),
            ("", 0, b"2"),
        ]
    assert receiver.process.returncode == 0
