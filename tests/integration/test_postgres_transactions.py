"""Scheduling in the caller's own transaction: committed together, or neither is there."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped] # it has no types
import django  # type: ignore[import-untyped] # it has no types
import psycopg
import pytest
import pytest_asyncio
from django.conf import settings as django_settings  # type: ignore[import-untyped] # it has no types
from django.db import ConnectionHandler  # type: ignore[import-untyped] # it has no types
from psycopg.rows import class_row, dict_row, namedtuple_row, scalar_row
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session as SyncSession

import penstock
from penstock.model.errors import ConfigError, InvalidMessage
from penstock.model.state import State
from penstock.sdk.embedded import Engine
from penstock.stores.postgres import DRIVER
from penstock.stores.postgres.address import with_schema
from penstock.stores.postgres.schema import migrations
from penstock.stores.postgres.session import STATEMENTS
from systems.servers.postgres import PostgresServer
from tests.conformance.postgres_harness import PostgresHarness

DOCS = Path(__file__).parents[2] / "docs/concepts/postgresql.md"
KINDS = ("psycopg", "psycopg-sync", "asyncpg", "sqlalchemy", "sqlalchemy-sync", "django")
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
    elif kind == "sqlalchemy-sync":
        sync = create_engine(address.replace("postgresql", "postgresql+psycopg"))
        with SyncSession(sync) as plain_session:
            yield plain_session, later(plain_session.commit)
        sync.dispose()
    elif kind == "django":
        own = django_connection(address)
        own.set_autocommit(False)
        yield own, later(own.commit)
        own.rollback()
        own.close()
    else:
        with psycopg.connect(address) as plain:
            yield plain, later(plain.commit)
            plain.rollback()


def later(commit: Callable[[], object]) -> Callable[[], Awaitable[None]]:
    """A sync commit, for those who await one."""

    async def call() -> None:
        commit()

    return call


def django_connection(address: str) -> Any:
    """As Django itself makes it of its settings."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # it blocks this loop, which is ours alone
    if not django_settings.configured:
        django_settings.configure()
        django.setup()
    parts = urlsplit(address)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username,
        "HOST": parts.hostname,
        "PORT": parts.port,
    }
    return ConnectionHandler({"default": database})["default"]


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


class Order(NamedTuple):
    """What a caller makes of rows of its own."""

    is_new: str = ""
    held_state: str = ""
    held_due: str = ""


@pytest.mark.parametrize("is_sync", [False, True])
@pytest.mark.parametrize(
    "row_factory", [dict_row, scalar_row, namedtuple_row, class_row(Order), lambda _: str]
)
async def test_postgres_answers_whatever_the_callers_connection_makes_of_rows(
    row_factory: Any, is_sync: bool, engine: Engine, postgres: PostgresServer
) -> None:
    connection: Any
    if is_sync:
        connection = psycopg.connect(postgres.url, row_factory=row_factory)
        commit, close = later(connection.commit), later(connection.close)
    else:
        connection = await psycopg.AsyncConnection.connect(postgres.url, row_factory=row_factory)
        commit, close = connection.commit, connection.close
    try:
        first = await engine.schedule({}, id="mine", connection=connection)
        again = await engine.schedule({}, id="mine", connection=connection)
        await commit()
    finally:
        await close()
    assert (first.duplicate, again.duplicate) == (False, True)
    assert (await engine.get("mine")).due == first.due == again.due


class OwnSession(AsyncSession):
    """As an application or a framework derives it."""


class OwnConnection(psycopg.AsyncConnection[Any]):
    """As `psycopg.AsyncConnection` invites to."""


class Wrapped:
    """A connection of another library, whose rows are dictionaries, as those of psycopg 2 may
    be.
    """

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def cursor(self) -> psycopg.Cursor[Any]:
        return self._connection.cursor(row_factory=dict_row)


async def test_postgres_takes_connections_of_derived_types(
    engine: Engine, postgres: PostgresServer
) -> None:
    made = create_async_engine(postgres.url.replace("postgresql", "postgresql+psycopg"))
    async with OwnSession(made) as session:
        assert not (await engine.schedule({}, id="alchemy", connection=session)).duplicate
        await session.commit()
    await made.dispose()
    async with await OwnConnection.connect(postgres.url, row_factory=dict_row) as own:
        assert not (await engine.schedule({}, id="own", connection=own)).duplicate
    with psycopg.connect(postgres.url) as plain:
        receipt = await engine.schedule({}, id="wrapped", connection=Wrapped(plain))
        assert (receipt.state, receipt.duplicate) == (State.SCHEDULED, False)
    for message_id in ("alchemy", "own", "wrapped"):
        assert (await engine.get(message_id)).state is State.SCHEDULED


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


CRASH = """
import asyncio, os, sys
import psycopg
import penstock

async def main():
    async with penstock.open(sys.argv[1]) as engine:
        connection = await psycopg.AsyncConnection.connect(sys.argv[2])
        await engine.schedule({}, id="committed", connection=connection)
        await connection.commit()
        await engine.schedule({}, id="lost", connection=connection)
        os._exit(9)

asyncio.run(main())
"""


async def test_of_a_process_that_crashed_before_its_commit_nothing_is_there(
    engine: Engine, url: str, postgres: PostgresServer
) -> None:
    command = [sys.executable, "-c", CRASH, url, postgres.url]
    done = await asyncio.to_thread(subprocess.run, command, check=False)
    assert done.returncode == 9
    assert (await engine.get("committed")).state is State.SCHEDULED
    while (
        postgres.sql("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in tr%'") != "0"
    ):
        pass  # the server notices that the process is gone
    with pytest.raises(penstock.UnknownMessage):
        await engine.get("lost")
    assert not (await engine.schedule({}, id="lost")).duplicate, "the id is free"


async def test_two_processes_with_the_same_id_wait_for_each_other(
    engine: Engine, postgres: PostgresServer
) -> None:
    """The second waits for the first's end: after its rollback the second is new."""
    first = await psycopg.AsyncConnection.connect(postgres.url)
    second = await psycopg.AsyncConnection.connect(postgres.url)
    await engine.schedule({"n": 1}, id="same", connection=first)
    waiting = asyncio.create_task(engine.schedule({"n": 2}, id="same", connection=second))
    blocked = "SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"
    while await asyncio.to_thread(postgres.sql, blocked) == "0":
        pass
    await first.rollback()
    assert not (await waiting).duplicate
    await second.commit()
    assert (await engine.get("same")).payload == b'{"n":2}'
    await first.close()
    await second.close()


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
        ("due => '1960-01-01T00:00:00Z'", "due"),
        ("key => U&'a\\200Bb'", "key"),
        ("key => U&'a\\2028b'", "key"),
        ("key => U&'a\\00A0b'", "key"),
        ("key => U&'\\+0E0041'", "key"),
        ("""labels => '{"tz": "posix/Europe/Berlin"}'""", "labels.tz"),
        ("""labels => '{"tz": "posixrules"}'""", "labels.tz"),
        ("""labels => '{"tz": ["Europe/Berlin"]}'""", "labels.tz"),
        ("route => '-x'", "route"),
        ("route => '.x'", "route"),
        ("route => NULL", "route"),
        ("""headers => jsonb_build_object('a', U&'b\\200Bc')""", "headers.a"),
        ("""headers => jsonb_build_object('a', U&'\\2028')""", "headers.a"),
        ("""headers => jsonb_build_object('a', repeat('x', 4097))""", "headers.a"),
        ("expires => '-infinity'", "expires"),
        ("expires => '20000-01-01T00:00:00Z'", "expires"),
        ("due => '-infinity'", "due"),
        ("due => '20000-01-01T00:00:00Z'", "due"),
        ("due => NULL", "due"),
    ],
)
async def test_postgres_functions_refuse_what_intake_refuses(
    engine: Engine, url: str, postgres: PostgresServer, arguments: str, field: str
) -> None:
    schema = url.partition("schema=")[2].partition("&")[0]
    with pytest.raises(RuntimeError, match=f"{field}: "):
        postgres.sql(f"SELECT {schema}.schedule({arguments})")


async def test_every_zone_and_script_that_intake_takes_is_taken_by_sql(
    engine: Engine, url: str, postgres: PostgresServer
) -> None:
    schema = url.partition("schema=")[2].partition("&")[0]
    for number, zone in enumerate(("Europe/Berlin", "UTC", "Asia/Kolkata", "Etc/GMT+5")):
        labels = f"""labels => '{{"tz": "{zone}"}}'"""
        postgres.sql(f"SELECT {schema}.schedule({labels}, id => 'zone-{number}')")
        assert (await engine.get(f"zone-{number}")).labels == penstock.Labels(tz=zone)
    key = "Ärger 東京 قاهرة 🎫 a b"
    postgres.sql(f"SELECT {schema}.schedule(key => '{key}', id => 'key')")
    assert (await engine.get("key")).key == key


async def test_sql_takes_what_intake_takes_at_the_edges(
    engine: Engine, url: str, postgres: PostgresServer
) -> None:
    schema = url.partition("schema=")[2].partition("&")[0]
    for arguments in (
        "expires => 'infinity'",
        "expires => '9999-12-31T23:59:59Z'",
        "due => '1970-01-01T00:00:00Z'",
        "due => '9999-12-31T23:59:59Z'",
        """headers => '{"a": "", "b": "東京 🎫"}'""",
        "route => 'A.b_c-1'",
        "payload => to_jsonb(repeat('x', 262142))",
    ):
        postgres.sql(f"SELECT {schema}.schedule(id => 'edge', {arguments})")
        await engine.get("edge")
        postgres.sql(f"DELETE FROM {schema}.messages")


async def test_a_function_of_somebody_else_in_the_schema_is_left_alone(
    postgres: PostgresServer,
) -> None:
    url = PostgresHarness(postgres).url
    schema = url.partition("schema=")[2].partition("&")[0]
    postgres.sql(
        f"CREATE SCHEMA {schema};"
        f" CREATE FUNCTION {schema}.mine() RETURNS int LANGUAGE sql SET search_path = elsewhere"
        " AS 'SELECT 1';"
        f" CREATE PROCEDURE {schema}.theirs() LANGUAGE sql SET search_path = elsewhere"
        " AS 'SELECT 1'"
    )
    async with penstock.open(url):
        paths = postgres.sql(
            "SELECT proconfig FROM pg_proc WHERE proname IN ('mine', 'theirs')"
            f" AND pronamespace = '{schema}'::regnamespace"
        )
        assert paths.split() == ["{search_path=elsewhere}"] * 2
        ours = postgres.sql(
            "SELECT count(*) FROM pg_proc WHERE proname NOT IN ('mine', 'theirs')"
            f" AND pronamespace = '{schema}'::regnamespace AND (prosecdef OR proconfig IS NOT NULL)"
            " AND array_to_string(proconfig, ',') NOT LIKE '%pg_catalog, pg_temp%'"
        )
        assert ours == "0"
    assert DRIVER.scratch is not None
    await DRIVER.scratch.erase(url)


async def test_functions_of_turns_that_were_made_before_look_for_temporary_tables_last(
    postgres: PostgresServer,
) -> None:
    """The first four migrations were released, with the triggers of a keyed route."""
    url = PostgresHarness(postgres).url
    schema = url.partition("schema=")[2].partition("&")[0]
    with psycopg.connect(postgres.url) as connection:
        connection.execute(f"CREATE SCHEMA {schema}; SET search_path TO {schema}".encode())
        for _, text in migrations()[:4]:
            connection.execute(text.encode())
        for name in (f"turns_{n}" for n in range(1, 7)):
            connection.execute(STATEMENTS[name].encode())
        connection.execute(b"INSERT INTO meta VALUES ('schema_version', '4')")
    async with penstock.open(url):
        paths = postgres.sql(
            "SELECT DISTINCT proconfig FROM pg_proc WHERE prosrc LIKE '%turn%'"
            f" AND pronamespace = '{schema}'::regnamespace AND proname LIKE '%turn%'"
        )
        assert paths == f'{{"search_path={schema}, pg_catalog, pg_temp"}}'
    assert DRIVER.scratch is not None
    await DRIVER.scratch.erase(url)


PUT = {
    "id": "'mine'", "route": "'default'", "key": "'k'", "payload": "'{}'", "content_type": "NULL",
    "headers": "NULL", "labels": "NULL", "topic": "NULL", "due": "1", "expires": "NULL",
    "priority": "5",
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("route", "'bad route!!'"),
        ("route", "NULL"),
        ("route", "'-x'"),
        ("id", "'é'"),
        ("id", "NULL"),
        ("key", "''"),
        ("key", "E'a\\nb'"),
        ("payload", "NULL"),
        ("payload", "convert_to(repeat('x', 262145), 'UTF8')"),
        ("content_type", "E'a\\nb'"),
        ("headers", "'x'"),
        ("headers", "'[]'"),
        ("headers", """'{"a": 1}'"""),
        ("headers", """'{"a": "x", "a": 1}'"""),
        ("headers", """'{"a": "b\\u200bc"}'"""),
        ("labels", "'x'"),
        ("labels", """'{"colour": "x"}'"""),
        ("topic", "''"),
        ("due", "-1"),
        ("due", "253402300800000"),
        ("expires", "1"),
        ("expires", "253402300800000"),
        ("priority", "55"),
        ("priority", "NULL"),
    ],
)
async def test_what_python_calls_is_checked_as_well(
    engine: Engine, url: str, postgres: PostgresServer, field: str, value: str
) -> None:
    """A role may call `put_message` itself: a row that cannot be read would stop every worker."""
    schema = url.partition("schema=")[2].partition("&")[0]
    good, bad = ", ".join(PUT.values()), ", ".join((PUT | {field: value}).values())
    with pytest.raises(RuntimeError, match=f"{field}[^:]*: "):
        postgres.sql(f"SELECT {schema}.put_message({bad})")
    postgres.sql(f"SELECT {schema}.put_message({good})")
    assert (await engine.get("mine")).priority == 5


async def test_a_temporary_table_stands_in_for_none_of_ours(
    engine: Engine, url: str, postgres: PostgresServer
) -> None:
    """Neither to run code as the owner of the functions, nor by accident."""
    schema = url.partition("schema=")[2].partition("&")[0]
    role = f"app_{schema}"
    grants = docs_block("TO shop").replace("shop", role).replace("penstock", schema)
    postgres.sql(f"CREATE ROLE {role} LOGIN; {grants}")
    tables = [
        name
        for name in postgres.sql(
            f"SELECT relname FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'S')"
            f" AND relnamespace = '{schema}'::regnamespace"
        ).split()
        if name != "meta"
    ]
    address = postgres.url.replace("penstock@", f"{role}@")
    async with await psycopg.AsyncConnection.connect(address) as connection:
        for name in tables:
            await connection.execute(f"CREATE TEMP TABLE {name} (id TEXT, route TEXT)".encode())
        await connection.execute(b"CREATE TEMP TABLE meta (name TEXT, value TEXT)")
        await connection.execute(f"SELECT {schema}.schedule(id => 'sql')".encode())
        await engine.schedule({}, id="python", connection=connection)
        await connection.execute(f"SELECT {schema}.cancel('sql')".encode())
        for name in (*tables, "meta"):
            row = await (
                await connection.execute(f"SELECT count(*) FROM {name}".encode())
            ).fetchone()
            assert row == (0,)
    assert (await engine.get("sql")).state is State.CANCELLED
    assert (await engine.get("python")).id == "python"
    postgres.sql(f"DROP OWNED BY {role}; DROP ROLE {role}")


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


async def test_the_least_role_schedules_from_python_too(
    engine: Engine, url: str, postgres: PostgresServer
) -> None:
    """What the documentation grants is enough for `connection=`, and for nothing else."""
    schema = url.partition("schema=")[2].partition("&")[0]
    role = f"app_{schema}"
    grants = docs_block("TO shop").replace("shop", role).replace("penstock", schema)
    postgres.sql(f"CREATE ROLE {role} LOGIN; {grants}")
    address = postgres.url.replace("penstock@", f"{role}@")
    async with await psycopg.AsyncConnection.connect(address) as connection:
        receipt = await engine.schedule({}, id="mine", connection=connection)
        assert not receipt.duplicate
        called = f"SELECT {schema}.cancel('mine')"
        assert await (await connection.execute(called.encode())).fetchone() == (True,)
    for forbidden in ("DELETE FROM {}.messages", "SELECT * FROM {}.meta", "DROP TABLE {}.history"):
        async with await psycopg.AsyncConnection.connect(address) as connection:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await connection.execute(forbidden.format(schema).encode())
    postgres.sql(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_worker_needs_no_more_than_the_tables(url: str, postgres: PostgresServer) -> None:
    """A role that owns nothing and may not create serves a schema that an owner has made."""
    async with penstock.open(url):
        schema = url.partition("schema=")[2].partition("&")[0]
    role = f"worker_{schema}"
    grants = docs_block("ALL TABLES").replace("courier", role).replace("penstock", schema)
    postgres.sql(f"CREATE ROLE {role} LOGIN; {grants}")
    sent: asyncio.Queue[str] = asyncio.Queue()

    async def handle(message: penstock.Message) -> None:
        sent.put_nowait(message.id)

    own = url.replace("penstock@", f"{role}@")
    async with penstock.open(own, routes={"default": handle}, worker=True) as engine:
        await engine.schedule({}, id="once")
        assert await sent.get() == "once"
        while (await engine.get("once")).state is not State.DELIVERED:
            pass  # each look is a round trip
    postgres.sql(f"DROP OWNED BY {role}; DROP ROLE {role}")


def docs_block(containing: str) -> str:
    """The block of SQL of the documentation with these words."""
    blocks = DOCS.read_text().split("```")[1::2]
    (found,) = [block for block in blocks if block.startswith("sql") and containing in block]
    return found.removeprefix("sql\n")


async def test_the_order_and_its_reminder_of_the_documentation(
    engine: Engine, url: str, postgres: PostgresServer
) -> None:
    schema = url.partition("schema=")[2].partition("&")[0]
    orders = f"orders_{schema}"
    postgres.sql(f"CREATE TABLE {orders} (id BIGINT PRIMARY KEY, total INT)")
    block = next(b for b in DOCS.read_text().split("```")[1::2] if "async def order" in b)
    code = block.removeprefix("python\n").replace("orders (", f"{orders} (")
    names: dict[str, Any] = {}
    exec(code.replace("postgresql://app@db.example/shop", postgres.url), names)
    await names["order"](engine)
    message = await engine.get("order-42")
    assert (message.payload, message.route) == (b'{"order":42}', "reminders")
    with pytest.raises(psycopg.errors.UniqueViolation):
        await names["order"](engine)  # the same order again: nothing of it is there
    statements = docs_block("BEGIN").replace("42", "43").replace("penstock.", f"{schema}.")
    answered = postgres.sql(statements.replace("orders (", f"{orders} ("))
    assert answered.split() == ["order-43", "t"]
    assert (await engine.get("order-43")).state is State.CANCELLED
    assert postgres.sql(f"SELECT count(*) FROM {orders}") == "2"
    postgres.sql(f"DROP TABLE {orders}")


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
