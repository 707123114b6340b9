"""Scheduling in the caller's own transaction: committed together, or neither is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import asyncpg  # type: ignore[import-untyped] # it has no types
import psycopg
import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import penstock
from penstock.model.errors import ConfigError, InvalidMessage
from penstock.model.state import State
from penstock.sdk.embedded import Engine
from penstock.stores.postgres import DRIVER
from penstock.stores.postgres.address import with_schema
from systems.servers.postgres import PostgresServer
from tests.conformance.postgres_harness import PostgresHarness

KINDS = ("psycopg", "psycopg-sync", "asyncpg", "sqlalchemy", "cursor")
Opened: TypeAlias = AbstractAsyncContextManager[tuple[Any, Any]]


@pytest_asyncio.fixture
async def url(postgres: PostgresServer) -> AsyncIterator[str]:
    url = PostgresHarness(postgres).url
    yield url
    assert DRIVER.scratch is not None
    await DRIVER.scratch.erase(url)


@pytest_asyncio.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    async with penstock.open(url) as engine:
        yield engine


@asynccontextmanager
async def transaction(kind: str, address: str) -> AsyncIterator[tuple[Any, Any]]:
    """A connection of the kind, in a transaction, and what commits it; left alone: rolled back."""
    if kind == "asyncpg":
        connection = await asyncpg.connect(address)
        begun = connection.transaction()
        await begun.start()
        yield connection, begun.commit
        await connection.close()
    elif kind == "sqlalchemy":
        made = create_async_engine(address.replace("postgresql", "postgresql+psycopg"))
        async with AsyncSession(made) as session:
            yield session, session.commit
        await made.dispose()
    elif kind == "psycopg":
        async with await psycopg.AsyncConnection.connect(address) as opened:
            yield opened, opened.commit
            await opened.rollback()
    else:
        with psycopg.connect(address) as plain:

            async def commit() -> None:
                plain.commit()

            yield (plain if kind == "psycopg-sync" else Wrapper(plain)), commit
            plain.rollback()


class Wrapper:
    """A connection with cursors, as Django's is around a driver's."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def cursor(self) -> psycopg.Cursor[Any]:
        return self._connection.cursor()


@pytest.mark.parametrize("kind", KINDS)
async def test_postgres_has_the_message_after_the_commit_and_never_before(
    kind: str, engine: Engine, postgres: PostgresServer
) -> None:
    async with transaction(kind, postgres.url) as (connection, commit):
        receipt = await engine.schedule(
            {"order": 42}, route="hook", id="order-42", key="ann", connection=connection
        )
        assert (receipt.id, receipt.state, receipt.duplicate) == (
            "order-42",
            State.SCHEDULED,
            False,
        )
        with pytest.raises(penstock.UnknownMessage):
            await engine.get("order-42")
        await commit()
        message = await engine.get("order-42")
    assert (message.payload, message.key, message.route) == (b'{"order":42}', "ann", "hook")


@pytest.mark.parametrize("kind", KINDS)
async def test_postgres_has_nothing_of_what_was_rolled_back(
    kind: str, engine: Engine, postgres: PostgresServer
) -> None:
    async with transaction(kind, postgres.url) as (connection, _):
        await engine.schedule({}, id="gone", connection=connection)
    with pytest.raises(penstock.UnknownMessage):
        await engine.get("gone")


async def test_postgres_forgets_what_a_savepoint_took_back(
    engine: Engine, postgres: PostgresServer
) -> None:
    async with await psycopg.AsyncConnection.connect(postgres.url) as connection:
        await engine.schedule({}, id="outer", connection=connection)
        async with connection.transaction(force_rollback=True):
            await engine.schedule({}, id="inner", connection=connection)
    assert (await engine.get("outer")).id == "outer"
    with pytest.raises(penstock.UnknownMessage):
        await engine.get("inner")


async def test_postgres_takes_one_of_two_transactions_with_the_same_id(
    engine: Engine, postgres: PostgresServer
) -> None:
    async def put(number: int) -> bool:
        async with await psycopg.AsyncConnection.connect(postgres.url) as connection:
            receipt = await engine.schedule({"n": number}, id="same", connection=connection)
            await asyncio.sleep(0)
        return receipt.duplicate

    answers = await asyncio.gather(*(put(n) for n in range(6)))
    assert sorted(answers) == [False, *[True] * 5]


async def test_postgres_knows_a_duplicate_of_what_is_settled(
    url: str, postgres: PostgresServer
) -> None:
    sent: asyncio.Queue[str] = asyncio.Queue()

    async def handle(message: penstock.Message) -> None:
        sent.put_nowait(message.id)

    async with penstock.open(url, routes={"default": handle}, worker=True) as engine:
        async with await psycopg.AsyncConnection.connect(postgres.url) as connection:
            await engine.schedule({}, id="once", connection=connection)
            await engine.schedule({}, id="later")
            assert await sent.get() == "later", "the worker looked, and did not see the first"
        assert await sent.get() == "once"
        while (await engine.get("once")).state is not State.DELIVERED:
            pass  # each look is a round trip
        async with await psycopg.AsyncConnection.connect(postgres.url) as connection:
            again = await engine.schedule({}, id="once", connection=connection)
    assert (again.duplicate, again.state) == (True, State.DELIVERED)


async def test_postgres_wakes_a_worker_at_the_commit_of_an_sql_caller(
    url: str, postgres: PostgresServer
) -> None:
    sent: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(message: penstock.Message) -> None:
        sent.put_nowait(message.payload)

    schema = url.partition("schema=")[2].partition("&")[0]
    async with penstock.open(url, routes={"hook": handle}, worker=True):
        call = f"SELECT {schema}.schedule(route => 'hook', payload => '{{\"order\": 42}}')"
        await asyncio.to_thread(postgres.sql, call)
        assert await sent.get() == b'{"order": 42}'


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ("route => 'a b'", "route"),
        ("id => ''", "id"),
        ("id => 'é'", "id"),
        ("key => ''", "key"),
        ("priority => 10", "priority"),
        ("due => 'infinity'", "due"),
        ("expires => now() - interval '1 hour'", "expires"),
        ("headers => '[]'", "headers"),
        ("""headers => '{"Webhook-Id": "x"}'""", "headers"),
        ("""headers => '{"a b": "x"}'""", "headers"),
        ("""headers => '{"a": "\\n"}'""", "headers.a"),
        ("""labels => '{"colour": "x"}'""", "labels.colour"),
        ("""labels => '{"tz": "Mars/One"}'""", "labels.tz"),
        ("""labels => '{"tags": [1]}'""", "labels.tags"),
        ("payload => to_jsonb(repeat('x', 262144))", "payload"),
    ],
)
async def test_postgres_functions_refuse_what_intake_refuses(
    engine: Engine, url: str, postgres: PostgresServer, arguments: str, field: str
) -> None:
    schema = url.partition("schema=")[2].partition("&")[0]
    with pytest.raises(RuntimeError, match=f"{field}: "):
        postgres.sql(f"SELECT {schema}.schedule({arguments})")


async def test_postgres_cancels_from_sql(
    engine: Engine, url: str, postgres: PostgresServer
) -> None:
    schema = url.partition("schema=")[2].partition("&")[0]
    await engine.schedule({}, id="waits", delay="1h")
    assert postgres.sql(f"SELECT {schema}.cancel('waits'), {schema}.cancel('nobody')") == "t|f"
    message = await engine.get("waits")
    assert (message.state, message.version) == (State.CANCELLED, 2)


async def test_postgres_lets_a_role_schedule_that_may_not_read(
    engine: Engine, url: str, postgres: PostgresServer
) -> None:
    schema = url.partition("schema=")[2].partition("&")[0]
    role = f"app_{schema}"
    postgres.sql(
        f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role};"
        f" GRANT EXECUTE ON FUNCTION {schema}.schedule, {schema}.cancel TO {role}"
    )
    address = postgres.url.replace("penstock@", f"{role}@")
    async with await psycopg.AsyncConnection.connect(address) as connection:
        await connection.execute(f"SELECT {schema}.schedule(id => 'mine')".encode())
    assert (await engine.get("mine")).id == "mine"
    async with await psycopg.AsyncConnection.connect(address) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await connection.execute(f"SELECT * FROM {schema}.messages".encode())
    postgres.sql(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_connection_needs_a_store_in_postgres(engine: Engine) -> None:
    async with penstock.open("memory://") as other:
        with pytest.raises(ConfigError, match="PostgreSQL"):
            await other.schedule({}, connection=object())
    with pytest.raises(ConfigError, match="object"):
        await engine.schedule({}, connection=object())
    with pytest.raises(InvalidMessage, match="on_conflict"):
        await engine.schedule({}, connection=object(), on_conflict="replace")


def test_addresses_of_postgres_keep_their_schema() -> None:
    assert with_schema("postgresql://h/db?schema=a&sslmode=require", "b").endswith(
        "?sslmode=require&schema=b"
    )
