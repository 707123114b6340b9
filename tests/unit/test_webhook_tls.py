"""Webhooks through a proxy, to a private authority, with a certificate of our own."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.model.errors import ConfigError, SinkUnavailable
from penstock.model.outcome import DELIVERED, Retry, SendOutcome
from penstock.ports.sink import SinkOptions
from penstock.sim.receiver import Receiver
from penstock.sinks.webhook import open_sink
from penstock.testing.sink_suite import message
from systems.servers.certificates import Certificate, make_certificate


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


async def sent(url: str, **more: object) -> SendOutcome:
    sink = await open_sink(url, SinkOptions(timeout=30, more=more))
    try:
        await sink.check()
        (outcome,) = await sink.send([message()])
    finally:
        await sink.close()
    return outcome


@asynccontextmanager
async def https(
    certificate: Certificate, *, wants_client: bool = False
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A receiver behind TLS; the lines of the heads that came."""
    heads: list[bytes] = []
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.cert, certificate.key)
    if wants_client:
        context.load_verify_locations(certificate.cert)
        context.verify_mode = ssl.CERT_REQUIRED

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client left: it did not like our certificate
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads


@asynccontextmanager
async def proxy(*, status: bytes = b"200 OK") -> AsyncIterator[tuple[str, list[bytes]]]:
    """An HTTP proxy that passes CONNECT and plain requests on; the heads it was given."""
    heads: list[bytes] = []

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:  # a check: nothing was asked
            writer.close()
            return
        heads.append(head)
        method, target, _ = head.split(b" ", 2)
        if not status.startswith(b"200"):
            writer.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n" % status)
            writer.close()
            return
        where = target if method == b"CONNECT" else target.split(b"/")[2]
        host, _, port = where.decode().partition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        if method == b"CONNECT":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            far_writer.write(head)
        await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", heads


async def test_a_private_authority_is_trusted_when_it_is_named(certificate: Certificate) -> None:
    async with https(certificate) as (url, _):
        assert await sent(url, tls_ca=str(certificate.cert)) == DELIVERED
        sink = await open_sink(url, SinkOptions(timeout=30))
        try:
            with pytest.raises(SinkUnavailable, match="certificate"):
                await sink.check()
            (outcome,) = await sink.send([message()])
        finally:
            await sink.close()
        assert isinstance(outcome, Retry)
        assert "certificate verify failed" in outcome.error


async def test_a_receiver_that_wants_a_certificate_gets_ours(certificate: Certificate) -> None:
    ca, cert, key = str(certificate.cert), str(certificate.cert), str(certificate.key)
    async with https(certificate, wants_client=True) as (url, _):
        assert await sent(url, tls_ca=ca, tls_cert=cert, tls_key=key) == DELIVERED
        assert isinstance(await sent(url, tls_ca=ca), Retry)


async def test_messages_go_through_the_proxy(certificate: Certificate) -> None:
    async with proxy() as (address, heads), Receiver() as receiver, https(certificate) as (url, _):
        login = f"http://ann:opensesame@{address}"
        assert await sent(f"{receiver.url}/hook", proxy=login) == DELIVERED
        assert heads[0].startswith(b"POST http://127.0.0.1:%d/hook " % receiver.port)
        assert await sent(url, proxy=login, tls_ca=str(certificate.cert)) == DELIVERED
        assert heads[1].startswith(b"CONNECT 127.0.0.1:")
        basic = base64.b64encode(b"ann:opensesame")
        assert all(b"roxy-Authorization: Basic " + basic in head for head in heads)


async def test_what_a_proxy_refuses_is_tried_again(certificate: Certificate) -> None:
    async with proxy(status=b"407 No") as (address, _), https(certificate) as (url, _heads):
        ca = str(certificate.cert)
        refused = await sent(url, proxy=f"http://{address}", tls_ca=ca)
        assert isinstance(refused, Retry)
        assert refused.error.endswith("the proxy answered 407")
        plain = await sent(url.replace("https", "http"), proxy=f"http://{address}")
        assert isinstance(plain, Retry)


@pytest.mark.parametrize("wrong", ["socks5://h:1", "http://", "h:3128", "http://h:0", "http://[x"])
async def test_a_proxy_that_is_none_is_refused_without_its_password(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"routes\.default\.proxy: must be http://"):
        await open_sink("https://h/x", SinkOptions(more={"proxy": wrong}))


async def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, certificate: Certificate
) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    cert = str(certificate.cert)
    for more, told in (
        ({"tls_ca": "/no/ca.pem"}, r"routes\.default\.tls_ca: cannot read /no/ca\.pem"),
        ({"tls_ca": str(empty)}, r"tls_ca: .*empty\.pem holds no certificate"),
        ({"tls_cert": "/no/cert.pem"}, r"tls_cert: cannot read /no/cert\.pem"),
        ({"tls_cert": cert, "tls_key": "/no/key.pem"}, r"tls_key: cannot read /no/key\.pem"),
        ({"tls_cert": cert, "tls_key": str(empty)}, r"tls_cert: .*cert\.pem and .*empty\.pem"),
        ({"tls_key": str(certificate.key)}, r"tls_key: .*set tls_cert too"),
    ):
        with pytest.raises(ConfigError, match=told):
            await open_sink("https://h/x", SinkOptions(more=more))
