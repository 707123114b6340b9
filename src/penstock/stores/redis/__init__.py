"""The store of a fleet: Redis, or Redis Cluster, behind the same port as SQLite.

`redis://` `rediss://` `unix://` `redis+cluster://`; see `address.py` for the options of a URL.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from penstock.model.errors import StoreUnavailable
from penstock.ports.store import ScratchStores, Store, StoreDriver
from penstock.redis_kit.address import parse_address
from penstock.redis_kit.connect import Cursors, Server, connect
from penstock.redis_kit.errors import Vendor, translate
from penstock.redis_kit.health import inspect, wait_command
from penstock.redis_kit.runner import Runner
from penstock.redis_kit.wake import Wakeups
from penstock.stores.redis.keys import Widths
from penstock.stores.redis.layout import Layout
from penstock.stores.redis.search.key_index import KeyIndex, drop
from penstock.stores.redis.session import Session
from penstock.stores.redis.store import RedisStore
from penstock.time.clock import Clock
from penstock.time.server_clock import ServerClock

__all__ = ["DRIVER", "RedisStore", "open_store"]


async def open_store(
    url: str,
    *,
    total_partitions: int | None,
    retention: int,
    retention_count: int,
    bucket_size_sec: int = 60,
    clock: Clock | None = None,
) -> Store:
    """Connect and take part in the store's layout; the caller closes the store.

    `retention` (milliseconds) and `retention_count` bound how long and how many settled messages
    stay known, whichever comes first. Growing `total_partitions` works with messages in place; a
    smaller one than the store has is a ConfigError; None: as many as it has. `clock` replaces the
    server's: it can only be behind it, because scripts compare every `now` with the server's own
    time.
    """
    address = parse_address(url)
    server = connect(address)
    try:
        runner = Runner(server, address.name, wait_command(address))
        await inspect(runner, address)
        layout = Layout(runner, address.prefix)
        await layout.open(total_partitions)
        if clock is None:
            clock = ServerClock(runner.server_time)
            await clock.measure()
        session = Session(
            runner,
            layout,
            Widths((address.options.bucket_size_sec or bucket_size_sec) * 1000),
            Wakeups(server, f"{address.prefix}:wake"),
            retention=retention,
            retention_count=retention_count,
        )
        index = await _key_index(session, address.options.key_index)
    except BaseException:
        await server.close()
        raise
    return RedisStore(address, server, session, clock, index).as_store()


async def _key_index(session: Session, wanted: bool | None) -> KeyIndex | None:
    """Begin the index if it is requested: a store without messages has it complete from the
    start.
    """
    if wanted is False:
        await drop(session)
    if not wanted:
        return None
    index = KeyIndex(session)
    await index.step()
    return index


def nothing_to_read(url: str) -> str | None:
    """Check the URL; a server is there or it is not, and looking at it makes nothing."""
    parse_address(url)
    return None


_KINDS = ("string", "hash", "list", "zset", "set", "stream")
_COUNT = 1_000


def scratch_url(url: str, mark: str) -> str:
    """The URL of a store on the same server with the same settings and another key prefix."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    options["prefix"] = f"{mark}-{parse_address(url).prefix}"
    return urlunsplit(parts._replace(query=urlencode(options)))


async def erase(url: str) -> None:
    """Unlink every key of this prefix; StoreUnavailable names the keys when they may stay."""
    address = parse_address(url)
    server = connect(address)
    keys = f"{address.prefix}:*"
    try:
        await _unlink(server, keys)
    except Vendor as exc:
        why = translate(exc, address.name, retry_after=1.0).message
        raise StoreUnavailable(f"the keys {keys} may be left behind: {why}") from exc
    finally:
        await server.close()


async def _unlink(server: Server, match: str) -> None:
    """Looked for in steps, so that the server stays free."""
    for kind in _KINDS:
        cursors: Cursors = {}
        more = True
        while more:
            keys, cursors = await server.scan(cursors, match, _COUNT, kind)
            for key in keys:
                await server.call("UNLINK", key)
            more = bool(cursors)


DRIVER = StoreDriver(
    open_store=open_store,
    nothing_to_read=nothing_to_read,
    on_server=True,
    scratch=ScratchStores(url=scratch_url, erase=erase),
)
