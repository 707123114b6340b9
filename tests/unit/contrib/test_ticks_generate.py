"""The load of ticks: right requests, honest totals."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from penstock.contrib.ticks.commands import api_url
from penstock.contrib.ticks.generate import STAGE, Generator, Load
from penstock.flow.observe import Observer
from penstock.model.errors import ConfigError
from penstock.model.times import parse_moment
from penstock.settings import given
from penstock.sim.errors import Unreachable
from penstock.sim.receiver import Receiver
from penstock.sim.replies import How, Reply

NOW = 1_900_000_000.0


async def test_ticks_are_posted_with_the_shape_of_the_contract() -> None:
    observer = Observer()
    async with Receiver() as receiver:
        receiver.always(Reply(status=202))
        load = Load(url=receiver.url, count=50, connections=4, within=30, items=7, token="t0ken")
        generator = Generator(load, observer, chance=random.Random(1), now=lambda: NOW)
        totals = await generator.run()
    assert (totals.generated, totals.failed, totals.unknown) == (50, 0, 0)
    assert observer.total(STAGE) == len(receiver.received) == 50
    for request in receiver.received:
        assert (request.method, request.path) == ("POST", "/ticks")
        assert request.headers["authorization"] == "Bearer t0ken"
        tick = json.loads(request.body)
        assert set(tick) == {"item", "at"}
        assert tick["item"] in {f"user{number:06d}" for number in range(7)}
        assert NOW * 1000 <= parse_moment(tick["at"]) <= (NOW + 30) * 1000


async def test_ticks_can_be_posted_as_the_original_generator_does() -> None:
    async with Receiver() as receiver:
        load = Load(url=receiver.url, count=20, connections=4, chunked=True, pause=0.005)
        totals = await Generator(load, Observer()).run()
    assert (totals.generated, totals.unknown) == (20, 0)
    for request in receiver.received:
        assert (request.method, request.path) == ("POST", "/tick")
        assert request.headers["transfer-encoding"] == "chunked"
        assert "content-type" not in request.headers
        assert set(json.loads(request.body)) == {"item", "at"}


async def test_answers_that_are_not_good_are_counted_apart() -> None:
    async with Receiver() as receiver:
        receiver.then(Reply(status=500), Reply(status=503), Reply(how=How.CUT))
        generator = Generator(Load(url=receiver.url, count=10, connections=1), Observer())
        totals = await generator.run()
    assert (totals.generated, totals.failed, totals.unknown) == (7, 2, 1)


async def test_answers_may_differ_in_length_and_come_in_pieces() -> None:
    """The usual answer is known by its size: others still have to be read."""
    bodies = [b"{}", b"{}", b'{"id":"12345678"}', b"{}", b"", b'{"id":"12345678"}', b"{}"]
    pieces = [
        b"HTTP/1.1 202 Accepted\r\ncontent-length: %d\r\n\r\n%s" % (len(b), b) for b in bodies
    ]
    left = [part for whole in pieces for part in (whole[:30], whole[30:])]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000) and left:
            for _ in range(2):
                writer.write(left.pop(0))
                await asyncio.sleep(0.005 if len(left) % 4 else 0)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        generator = Generator(Load(url=url, count=len(bodies), connections=1), Observer())
        totals = await generator.run()
    assert (totals.generated, totals.failed, totals.unknown) == (len(bodies), 0, 0)


async def test_what_is_under_way_when_it_is_stopped_is_waited_for() -> None:
    async with Receiver() as receiver:
        receiver.always(Reply(delay=0.05))
        generator = Generator(Load(url=receiver.url, connections=3), Observer())
        receiver_waits = receiver.wait_for(3)

        async def stop() -> None:
            await receiver_waits
            generator.stop()

        stopper = asyncio.ensure_future(stop())
        totals = await generator.run()
        await stopper
    assert (totals.generated, totals.unknown) == (len(receiver.received), 0)


def test_a_rate_gives_each_request_a_slot_of_its_own() -> None:
    generator = Generator(Load(rate=10), Observer(), steady=lambda: 100.0)
    # The first two make up for the tenth of a second before now.
    assert [generator.pause() for _ in range(5)] == pytest.approx([0.0, 0.0, 0.1, 0.2, 0.3])


async def test_nobody_at_the_address_is_said_at_once() -> None:
    async with Receiver() as receiver:
        await receiver.down()
        with pytest.raises(Unreachable, match="no server answers"):
            await Generator(Load(url=receiver.url), Observer()).run()


async def test_a_server_that_is_about_to_listen_is_waited_for() -> None:
    async with Receiver() as receiver:
        await receiver.down()
        generator = Generator(Load(url=receiver.url, count=3, wait=60), Observer())
        running = asyncio.ensure_future(generator.run())
        done, _ = await asyncio.wait([running], timeout=0.1)
        assert not done
        await receiver.up()
        totals = await running
    assert totals.generated == 3


async def test_waiting_for_a_server_ends_when_it_is_stopped() -> None:
    async with Receiver() as receiver:
        await receiver.down()
        generator = Generator(Load(url=receiver.url, wait=600), Observer())
        running = asyncio.ensure_future(generator.run())
        await asyncio.wait([running], timeout=0.1)
        generator.stop()
        assert (await running).generated == 0


@pytest.mark.parametrize(
    ("http", "url"),
    [
        ("127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("0.0.0.0:9000", "http://127.0.0.1:9000"),
        ("[::]:9000", "http://[::1]:9000"),
        ("scheduler:8888", "http://scheduler:8888"),
    ],
)
def test_the_address_of_the_settings_is_the_one_to_post_to(http: str, url: str) -> None:
    assert api_url(given(api={"http": http})) == url


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="--url"):
        Generator(Load(url="127.0.0.1:8700"), Observer())
