"""What carries the calls: trust, proxies and addresses are the same for both clients."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

import penstock
from penstock.sim.receiver import Receiver
from penstock.sim.replies import How, Reply
from systems.servers.certificates import make_certificate

ACCEPTED = '{"id":"x","state":"scheduled","due":"2030-01-01T00:00:00.000Z","duplicate":false}'
Ask: TypeAlias = Callable[[str], Awaitable[penstock.Receipt]]


async def ask_async(url: str) -> penstock.Receipt:
    async with penstock.AsyncClient(url, retries=0) as client:
        return await client.schedule(1, id="x")


async def ask_sync(url: str) -> penstock.Receipt:
    with penstock.Client(url, retries=0) as client:
        return await asyncio.to_thread(client.schedule, 1, id="x")


both = pytest.mark.parametrize("ask", [ask_async, ask_sync], ids=["async client", "client"])


@asynccontextmanager
async def over_tls(folder: Path) -> AsyncIterator[str]:
    """A server that takes every message, with a certificate that nobody knows."""
    certificate = make_certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert, certificate.key)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 201 Created\r\ncontent-length: {len(ACCEPTED)}\r\n\r\n"
        writer.write(f"{head}{ACCEPTED}".encode())
        await reader.read()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@both
async def test_a_certificate_is_trusted_when_the_environment_names_its_authority(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with over_tls(tmp_path) as url:
        with pytest.raises(penstock.Unreachable, match=r"(?i)certificate.verify"):
            await ask(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        assert (await ask(url)).id == "x"


@both
async def test_a_proxy_of_the_environment_is_used(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Receiver() as proxy:
        proxy.always(Reply(status=201, body=ACCEPTED))
        monkeypatch.setenv("http_proxy", proxy.url)
        assert (await ask("http://penstock.test:8700")).id == "x"
        (request,) = proxy.received
        assert request.headers["host"] == "penstock.test:8700"
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        await ask(proxy.url)
        assert proxy.received[-1].headers["host"] == f"127.0.0.1:{proxy.port}"


def test_an_async_client_may_be_made_before_there_is_a_loop() -> None:
    client = penstock.AsyncClient("http://127.0.0.1:1", retries=0)

    async def ask() -> None:
        async with client:
            await client.get("m1")

    with pytest.raises(penstock.Unreachable):
        asyncio.run(ask())


async def test_a_connection_is_used_again_and_a_closed_one_is_not() -> None:
    async with Receiver() as receiver:
        receiver.always(Reply(status=201, body=ACCEPTED))
        with penstock.Client(receiver.url, retries=0) as client:
            await asyncio.to_thread(lambda: [client.schedule(n) for n in range(3)])
            assert {request.connection for request in receiver.received} == {1}
            await receiver.down()  # ends what is open
            await receiver.up()
            await asyncio.to_thread(client.schedule, 4)
            assert len(receiver.received) == 4


async def test_the_synchronous_client_waits_for_a_bulk_change_and_not_for_silence() -> None:
    async with Receiver() as receiver:
        with penstock.Client(receiver.url, retries=0, timeout=0.05) as client:
            receiver.always(Reply(body='{"matched":3,"done":3}', delay=0.2))
            assert (await asyncio.to_thread(client.cancel_where, route="push")).done == 3
            receiver.always(Reply(how=How.HANG))
            with pytest.raises(penstock.Unreachable, match="did not answer in time"):
                await asyncio.to_thread(client.get, "m1")
        with penstock.Client(receiver.url, retries=0) as client:
            receiver.always(Reply(how=How.CUT))
            with pytest.raises(penstock.Unreachable, match="broke"):
                await asyncio.to_thread(client.get, "m1")
        await receiver.down()
        with (
            penstock.Client(receiver.url, retries=0) as client,
            pytest.raises(penstock.Unreachable, match="penstock serve"),
        ):
            await asyncio.to_thread(client.get, "m1")


def test_a_closed_synchronous_client_takes_no_more_calls() -> None:
    client = penstock.Client("http://127.0.0.1:1")
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.schedule(1)


async def test_a_closed_client_takes_no_more_calls() -> None:
    async with Receiver() as receiver:
        for used_before in (False, True):
            client = penstock.AsyncClient(receiver.url, retries=0)
            receiver.always(Reply(status=201, body=ACCEPTED))
            if used_before:
                await client.schedule(1)
            await client.close()
            with pytest.raises(RuntimeError, match="closed"):
                await client.schedule(1)
