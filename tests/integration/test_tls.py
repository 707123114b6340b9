"""HTTP and gRPC by TLS: with real clients, ours and others'."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import httpx
import pytest

import penstock
from penstock.api.grpc.server import GrpcServer
from penstock.api.http.server import HttpServer
from penstock.api.tls import ServerTls
from penstock.model.errors import ConfigError, Unreachable
from penstock.settings import ApiSettings, Settings, given
from penstock.wiring import open_parts
from systems.servers.certificates import Certificate, make_certificate

pytestmark = pytest.mark.slow
FAR = "2040-01-31T09:00:00Z"


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return make_certificate(tmp_path)


@asynccontextmanager
async def serving(certificate: Certificate) -> AsyncIterator[tuple[HttpServer, GrpcServer]]:
    api = ApiSettings(
        http="127.0.0.1:0",
        grpc="127.0.0.1:0",
        tls_cert=certificate.cert,
        tls_key=certificate.key,
    )
    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(open_parts(Settings(store="sqlite://", api=api)))
        http = await stack.enter_async_context(HttpServer(parts))
        rpc = await stack.enter_async_context(GrpcServer(parts))
        yield http, rpc


def shown(address: tuple[str, int]) -> str:
    return ssl.get_server_certificate(address)


async def test_clients_that_trust_the_authority_are_served(certificate: Certificate) -> None:
    ca = str(certificate.cert)
    async with serving(certificate) as (http, rpc):
        assert http.url.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=ca)
        async with httpx.AsyncClient(base_url=http.url, verify=context, timeout=300) as other:
            for number in range(3):  # both ways in
                body = {"id": f"h{number}", "payload": 1, "at": FAR}
                assert (await other.post("/v1/messages", json=body)).status_code == 201
            many = [{"payload": "x" * 1000, "at": FAR}] * 500
            assert len((await other.post("/v1/messages/batch", json=many)).json()) == 500
            assert (await other.get("/")).status_code == 200
        async with penstock.AsyncClient(http.url, ca=ca) as client:
            assert (await client.get("h1")).route == "default"

        def from_a_thread() -> str:
            with penstock.Client(http.url, ca=ca) as client:
                return client.schedule(1, at=FAR, id="sync").id

        assert await asyncio.to_thread(from_a_thread) == "sync"
        async with penstock.GrpcClient(rpc.address, ca=ca) as caller:
            assert (await caller.get("sync")).route == "default"
        credentials = grpc.ssl_channel_credentials(certificate.cert.read_bytes())
        async with penstock.GrpcClient(rpc.address, credentials=credentials) as caller:
            assert (await caller.get("sync")).route == "default"


async def test_who_does_not_trust_it_or_speaks_in_the_clear_is_not_served(
    certificate: Certificate,
) -> None:
    async with serving(certificate) as (http, rpc):
        async with penstock.AsyncClient(http.url) as client:
            with pytest.raises(Unreachable, match=r"is not trusted .*`ca`"):
                await client.stats()

        def from_a_thread() -> None:
            with penstock.Client(http.url) as client:
                client.stats()

        with pytest.raises(Unreachable, match=r"is not trusted .*`ca`"):
            await asyncio.to_thread(from_a_thread)
        async with httpx.AsyncClient(timeout=300) as plain:
            with pytest.raises(httpx.HTTPError):
                await plain.get(http.url.replace("https", "http"))
        async with penstock.GrpcClient(rpc.address, retries=0) as caller:
            with pytest.raises(Unreachable):
                await caller.get("x")


async def test_the_command_line_speaks_to_a_server_with_a_private_authority(
    certificate: Certificate,
) -> None:
    def penstock_list(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "penstock", "list", "--json", *options]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=os.environ | environment
        )

    async with serving(certificate) as (http, _):
        url, ca = http.url, str(certificate.cert)
        by_option = await asyncio.to_thread(penstock_list, "--url", url, "--ca", ca)
        assert by_option.returncode == 0, by_option.stderr
        by_name = await asyncio.to_thread(penstock_list, PENSTOCK_URL=url, PENSTOCK_CA=ca)
        assert by_name.returncode == 0, by_name.stderr
        wrong = await asyncio.to_thread(penstock_list, "--url", url, "--ca", "/no/ca.pem")
        assert wrong.returncode == 2
        assert "cannot read /no/ca.pem" in wrong.stderr


async def test_a_renewed_certificate_is_used_without_a_restart(
    certificate: Certificate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new = make_certificate(_made(tmp_path / "new"))
    async with serving(certificate) as (http, rpc):
        host, _, port = rpc.address.partition(":")
        addresses = (http.address, (host, int(port)))
        before = [await asyncio.to_thread(shown, address) for address in addresses]
        assert before == [certificate.cert.read_text()] * 2
        certificate.key.write_text("nonsense")  # half of it, then all
        async with asyncio.timeout(60):
            while "the old one stays" not in caplog.text:  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0.02)
        assert await asyncio.to_thread(shown, http.address) == before[0]
        shutil.copy(new.key, certificate.key)
        shutil.copy(new.cert, certificate.cert)
        async with asyncio.timeout(60):
            for address in addresses:
                while await asyncio.to_thread(shown, address) != new.cert.read_text():  # noqa: ASYNC110 - nothing tells of it but the next handshake
                    await asyncio.sleep(0.02)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_file_that_cannot_be_used_is_named(certificate: Certificate, tmp_path: Path) -> None:
    other = make_certificate(_made(tmp_path / "other"))
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    cert, key, missing = certificate.cert, certificate.key, tmp_path / "missing.pem"
    for pair, told in (
        ((missing, key), r"api\.tls_cert: cannot read .*missing\.pem: No such file"),
        ((cert, missing), r"api\.tls_key: cannot read .*missing\.pem: No such file"),
        ((empty, key), r"api\.tls_cert: .*empty\.pem and .*key\.pem are not a certificate"),
        ((cert, other.key), r"api\.tls_cert: .*cert\.pem and .*other/key\.pem .*mismatch"),
    ):
        with pytest.raises(ConfigError, match=told):
            ServerTls(*pair)
    with pytest.raises(ConfigError, match="tls_key is not set"):
        given(api={"tls_cert": str(cert)})
