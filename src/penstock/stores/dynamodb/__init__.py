"""The tiered store: DynamoDB holds the messages, Redis the ids of those due soon.

`dynamodb+redis://HOST:PORT/TABLE?redis=…`; see `address.py` for what a URL may say.
"""

from __future__ import annotations

from penstock.model.errors import ConfigError, PenstockError, StoreUnavailable
from penstock.ports.store import Store, StoreDriver
from penstock.redis_kit.connect import connect
from penstock.redis_kit.runner import Runner
from penstock.redis_kit.wake import Wakeups
from penstock.stores.dynamodb import schema
from penstock.stores.dynamodb.address import Address, parse_address
from penstock.stores.dynamodb.buckets import Buckets
from penstock.stores.dynamodb.clock import NearClock
from penstock.stores.dynamodb.gateway import Gateway, open_gateway
from penstock.stores.dynamodb.items import Shape
from penstock.stores.dynamodb.near import Near
from penstock.stores.dynamodb.near_turns import NearTurns
from penstock.stores.dynamodb.session import Session, log
from penstock.stores.dynamodb.store import TieredStore
from penstock.stores.dynamodb.table import Table
from penstock.stores.dynamodb.turns import know_keyed
from penstock.time.clock import Clock

__all__ = ["DRIVER", "TieredStore", "init_store", "open_store"]


async def open_store(
    url: str,
    *,
    total_partitions: int | None,
    retention: int,
    retention_count: int,
    bucket_size_sec: int = 60,
    clock: Clock | None = None,
) -> Store:
    """Connect to an existing table; the caller closes the store.

    `retention` (milliseconds) is how long settled messages are kept; `retention_count` limits their
    number if the URL says `forget=exact`. Redis may be unavailable: messages are accepted
    meanwhile, and released when it answers again. `clock` replaces Redis' own; it must not be ahead
    of that.
    """
    address = parse_address(url)
    gateway = await open_gateway(address)
    server = connect(address.redis)
    try:
        table, shards = await _table(gateway, address)
        partitions = await schema.keep_partitions(table, total_partitions)
        runner = Runner(server, address.redis.name)
        if clock is None:
            clock = await _redis_clock(runner)
        shape = Shape(bucket_size_sec * 1000, shards)
        wakeups = Wakeups(server, f"{address.redis.prefix}:near:wake")
        prefix, cluster = address.redis.prefix, server.cluster
        near = Near(runner, wakeups, prefix, partitions, cluster=cluster)
        turns = NearTurns(runner, wakeups, prefix, cluster=cluster)
    except BaseException:
        await server.close()
        await gateway.close()
        raise
    session = Session(
        table,
        Buckets(table, shape),
        shape,
        near,
        turns,
        wakeups,
        clock,
        near_ms=address.near,
        exact=address.options.forget == "exact",
        retention=retention,
        retention_count=retention_count,
    )
    store = TieredStore(address, gateway, server, session, clock)
    try:
        await know_keyed(session)
    except BaseException:
        await store.close()
        raise
    return store.as_store()


async def _table(gateway: Gateway, address: Address) -> tuple[Table, int]:
    options = address.options
    table = Table(gateway, address.table, partiql=options.partiql == "yes")
    try:  # describing the table first would be a call more; DynamoDB Local counts its items for it
        shards = await schema.shards_of(table)
    except StoreUnavailable as exc:
        if not schema.lacks_table(exc) or await schema.state_of(gateway, address.table) is not None:
            raise
        if not options.create:
            raise ConfigError(
                f"store: there is no table {address.table!r}: make it with `penstock store init`"
            ) from None
        await schema.create(gateway, address.table, options.shards)
        shards = await schema.shards_of(table)
    if options.partiql == "auto":
        table.partiql = await schema.takes_statements(gateway, address.table)
    return table, shards


async def _redis_clock(runner: Runner) -> NearClock:
    clock = NearClock(runner.server_time)
    try:
        await clock.measure()
    except PenstockError as exc:
        log.warning("Redis is away, no message is released until it answers: %s", exc)
    return clock


async def init_store(url: str) -> str:
    """Create the table, or its missing parts; the answer says what was done."""
    address = parse_address(url)
    gateway = await open_gateway(address)
    try:
        made = await schema.create(gateway, address.table, address.options.shards)
    finally:
        await gateway.close()
    return f"made {address.name}" if made else f"{address.name} is there"


def nothing_to_read(url: str) -> str | None:
    """Check the URL; reading never creates a table."""
    parse_address(url)
    return None


DRIVER = StoreDriver(
    open_store=open_store,
    nothing_to_read=nothing_to_read,
    on_server=True,
    init_store=init_store,
)
