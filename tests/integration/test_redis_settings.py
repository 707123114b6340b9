"""How a Redis store is reached, what it warns of, and whose clock counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.model.errors import ConfigError, StoreUnavailable
from penstock.model.message import NewMessage
from penstock.model.outcome import Settlement
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.redis_kit.address import parse_address
from penstock.stores.redis import open_store
from penstock.testing.clock import ManualClock
from penstock.time.clock import Clock
from systems.servers.certificates import make_certificate
from systems.servers.ports import free_port
from systems.servers.redis import RedisServer, free_cluster_port, tls_options

pytestmark = pytest.mark.slow


DAY = 86_400_000


async def open_at(url: str, partitions: int = 2, clock: Clock | None = None) -> MessageStore:
    return (
        await open_store(
            url, total_partitions=partitions, retention=DAY, retention_count=1_000, clock=clock
        )
    ).messages


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer("--requirepass", "s3cret:/@") as server:
        yield server


async def works(store: MessageStore) -> None:
    now = store.clock.now()
    await store.put([NewMessage(id="x", route="r", key="x", payload=b"1", due=now)], now)
    claim = await store.claim("r", 1, 1000, store.clock.now())
    assert [m.id for m in claim.messages] == ["x"]
    await store.close()


@pytest.mark.parametrize("scheme", ["unix", "redis+unix"])
async def test_a_unix_socket_with_a_password(server: RedisServer, scheme: str) -> None:
    await works(await open_at(f"{scheme}://:s3cret%3A%2F%40@{server.socket}?prefix={scheme}"))


async def test_a_password_in_the_url_is_never_shown(server: RedisServer) -> None:
    store = await open_at(f"redis://default:s3cret%3A%2F%40@127.0.0.1:{server.port}/1")
    assert "s3cret" not in store.name + str(await store.check())
    await works(store)


async def test_a_wrong_password_is_told_at_start(server: RedisServer) -> None:
    with pytest.raises(StoreUnavailable, match="refuses us"):
        await open_at(f"redis://:wrong@127.0.0.1:{server.port}/0")


async def test_a_password_that_is_wanted_is_asked_for(server: RedisServer) -> None:
    with pytest.raises(StoreUnavailable, match="wants a password: redis://:PASSWORD@"):
        await open_at(f"redis://127.0.0.1:{server.port}/0")


async def test_a_url_of_another_kind_of_server_is_told(server: RedisServer) -> None:
    """None of them mends by waiting, so none is waited for."""
    here = f":s3cret%3A%2F%40@127.0.0.1:{server.port}"
    with pytest.raises(ConfigError, match="no such database"):
        await open_at(f"redis://{here}/99")
    with pytest.raises(ConfigError, match="single server and no cluster: redis://"):
        await open_at(f"redis+cluster://{here}")
    with (
        RedisServer("--cluster-enabled", "yes", port=free_cluster_port()) as node,
        pytest.raises(ConfigError, match=r"node of a Redis Cluster: redis\+cluster://"),
    ):
        await open_at(f"redis://127.0.0.1:{node.port}")


async def test_tls_where_there_is_none_is_told(server: RedisServer) -> None:
    with pytest.raises(StoreUnavailable, match="if that port has no TLS: redis://"):
        await open_at(f"rediss://127.0.0.1:{server.port}?connect_timeout=200ms")


async def test_nobody_there_is_told_at_start() -> None:
    with pytest.raises(StoreUnavailable) as failure:
        await open_at(f"redis://127.0.0.1:{free_port()}/0")
    assert failure.value.retry_after > 0


async def test_tls(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    port = free_port()
    with RedisServer(*tls_options(port, certificate)):
        await works(await open_at(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificate.cert}"))
        with pytest.raises(StoreUnavailable, match=r"VERIFY_FAILED.*ssl_ca_certs=FILE"):
            await open_at(f"rediss://127.0.0.1:{port}/0")
        with pytest.raises(StoreUnavailable, match="if that port speaks TLS: rediss://"):
            await open_at(f"redis://127.0.0.1:{port}/0")


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        (("--maxmemory-policy", "allkeys-lru"), "maxmemory-policy allkeys-lru"),
        (("--maxmemory-policy", "volatile-ttl"), None),
        ((), "neither AOF nor RDB"),
        (("--save", "3600 1"), None),
    ],
)
async def test_settings_that_lose_messages_are_warned_of(
    caplog: pytest.LogCaptureFixture, options: tuple[str, ...], warned: str | None
) -> None:
    keeps = not options or options[0] == "--save"
    with RedisServer(*options, aof=not keeps) as server:
        await (await open_at(server.url)).close()
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert (warned is None and not told) or (warned is not None and warned in " ".join(told))


async def test_a_write_that_must_wait_for_a_replica_fails_without_one(
    server: RedisServer,
) -> None:
    url = f"redis://:s3cret%3A%2F%40@127.0.0.1:{server.port}/2"
    with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
        await open_at(f"{url}?wait_replicas=1&wait_ms=5")


async def test_waitaof_needs_a_server_that_has_it(server: RedisServer) -> None:
    url = f"redis://:s3cret%3A%2F%40@127.0.0.1:{server.port}/3"
    with pytest.raises(ConfigError, match=r"waitaof needs Redis 7\.2"):
        await open_at(f"{url}?waitaof=1")


async def test_a_wall_clock_that_is_wrong_changes_nothing(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 300_000_000_000)
    store = await open_at(f"redis://:s3cret%3A%2F%40@127.0.0.1:{server.port}/4")
    try:
        assert abs(store.clock.now() - real() // 1_000_000) < 10_000
    finally:
        await store.close()


async def test_a_worker_whose_clock_is_ahead_claims_nothing_early(server: RedisServer) -> None:
    store = await open_at(f"redis://:s3cret%3A%2F%40@127.0.0.1:{server.port}/5")
    try:
        now = store.clock.now()
        due = now + 400
        await store.put([NewMessage(id="x", route="r", key="x", payload=b"1", due=due)], now)
        ahead = now + 300_000
        assert (await store.claim("r", 1, 60_000, ahead)).messages == ()
        await asyncio.sleep(0.6)
        claim = await store.claim("r", 1, 60_000, now + 300_000)
        assert claim.messages[0].claimed is not None
        assert due <= claim.messages[0].claimed < ahead
        assert await store.reap(ahead, 10) == []
    finally:
        await store.close()


async def test_a_worker_whose_clock_is_ahead_forgets_nothing_early(server: RedisServer) -> None:
    store = await open_at(f"redis://:s3cret%3A%2F%40@127.0.0.1:{server.port}/6")
    try:
        now, ahead = store.clock.now(), store.clock.now() + 10 * DAY
        news = [NewMessage(id=id_, route="r", key=id_, payload=b"1", due=now) for id_ in "xy"]
        await store.put(news, now)
        claim = await store.claim("r", 2, 60_000, now)
        x, y = (
            Settlement(message=m, token=claim.token, state=State.DELIVERED, event="delivered")
            for m in claim.messages
        )
        await store.settle([x], now)
        await store.settle([y], ahead)
        assert await store.purge(ahead, 10) == 0
        assert None not in await store.find(["x", "y"])
    finally:
        await store.close()


async def test_a_worker_whose_clock_is_ahead_holds_nothing_for_longer(server: RedisServer) -> None:
    address = f"redis://:s3cret%3A%2F%40@127.0.0.1:{server.port}/7"
    ahead = ManualClock(int(time.time() * 1000) + DAY)
    wrong = await open_at(address, clock=ahead)
    right = await open_at(address)
    try:
        now = right.clock.now()
        await right.put([NewMessage(id="x", route="r", key="x", payload=b"1", due=now)], now)
        claim = await wrong.claim("r", 1, 100, ahead.now())
        await wrong.extend([claim.token], ahead.now() + 200)
        await right.clock.sleep_until(right.clock.now() + 250)
        assert [one.id for one in await right.reap(right.clock.now(), 10)] == ["x"]
    finally:
        await right.close()
        await wrong.close()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://h:1,h:2", "several hosts are for redis"),
        ("redis://h:x", "not host:port"),
        ("redis://h/zero", "not a number"),
        ("redis:/h", "needs two slashes: redis://"),
        ("redis+cluster://h/1", "no databases"),
        ("redis://h?colour=red", "no option 'colour'.*There are: prefix"),
        ("redis://h?keyindex=true", "did you mean key_index"),
        ("redis://h?key_index=maybe", "key_index must be true or false, not 'maybe'"),
        ("redis://h?wait_ms=long", "wait_ms must be a whole number, not 'long'"),
        ("rediss://h?ssl_ca_certs=nowhere.pem", "ssl_ca_certs: there is no file 'nowhere.pem'"),
        ("redis://h?ssl_ca_certs=nowhere.pem", "ssl_ca_certs is for TLS: rediss://"),
        ("redis://h?timeout=soon", "timeout"),
        ("unix://", "needs the socket's path"),
        ("redis://h?prefix={x}", "prefix"),
    ],
)
def test_an_address_that_cannot_work_is_told(url: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_address(url)


def test_an_address_is_taken_apart() -> None:
    address = parse_address("rediss+cluster://me:pass%40word@a:1,[::1]:2,b?timeout=500ms")
    assert address.hosts == (("a", 1), ("::1", 2), ("b", 6379))
    assert (address.username, address.password) == ("me", "pass@word")
    assert (address.tls, address.cluster, address.timeout) == (True, True, 0.5)
    assert "pass" not in address.name


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://me:secret@h/2", "redis://h:6379/2"),
        ("redis://h/0?prefix=penstock", "redis://h:6379/0"),
        ("redis://me:secret@h/0?prefix=sender", "redis://h:6379/0?prefix=sender"),
        ("redis+cluster://a,b?prefix=a%26b", "redis+cluster://a:6379,b:6379?prefix=a%26b"),
        ("unix:///run/redis.sock?prefix=sms", "unix:///run/redis.sock?prefix=sms"),
    ],
)
def test_a_store_among_others_on_a_server_is_named_with_its_prefix(url: str, name: str) -> None:
    assert parse_address(url).name == name
