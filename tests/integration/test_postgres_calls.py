"""Calls without a thread: no storm of connections, no silence about failures, no lost caller."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from penstock.model.errors import StoreUnavailable
from penstock.model.state import State
from penstock.stores.postgres import calls as of_calls
from penstock.stores.postgres import open_store
from penstock.stores.postgres.address import parse_address, with_schema
from penstock.stores.postgres.calls import Calls
from penstock.stores.postgres.store import PostgresStore
from penstock.testing.store_cases.base import ending, new
from penstock.testing.store_harness import DAY_MS, MANY
from systems.servers.postgres import PostgresServer
from tests.conformance.postgres_harness import PostgresHarness
from tests.integration.sqlite_files import until

LEASE = 60_000
REFUSED = "too many connections for role"


@pytest_asyncio.fixture
async def store(postgres: PostgresServer) -> AsyncIterator[PostgresStore]:
    harness = PostgresHarness(postgres)
    store = (await harness.open()).messages
    assert isinstance(store, PostgresStore)
    yield store
    await store.close()
    await harness.close()


@pytest_asyncio.fixture
async def narrow(postgres: PostgresServer) -> AsyncIterator[Calls]:
    """Calls of a role that may have one connection, and would like four."""
    postgres.sql("CREATE ROLE narrow LOGIN CONNECTION LIMIT 1")
    calls = Calls(parse_address(postgres.url.replace("penstock@", "narrow@")), 4)
    yield calls
    await calls.close()
    others = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'narrow'"
    await until(lambda: postgres.sql(others) == "0")
    postgres.sql("DROP ROLE narrow")


async def test_a_role_at_its_limit_of_connections_is_not_asked_for_more_all_the_time(
    narrow: Calls, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_calls, "_PAUSE", 3_600.0)
    assert await narrow.call(b"SELECT 1", ()) == [(1,)]
    before = postgres.log.read_text().count(REFUSED)
    for _ in range(40):
        answers = await asyncio.gather(*(narrow.call(b"SELECT 1", ()) for _ in range(5)))
        assert answers == [[(1,)]] * 5
    assert postgres.log.read_text().count(REFUSED) - before <= 3


async def test_a_role_at_its_limit_connects_again_where_its_connection_was_lost(
    narrow: Calls, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_calls, "_PAUSE", 0.01)
    await asyncio.gather(*(narrow.call(b"SELECT 1", ()) for _ in range(5)))
    postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'narrow'")
    while True:
        try:
            assert await narrow.call(b"SELECT 1", ()) == [(1,)]
        except (psycopg.Error, StoreUnavailable):
            await asyncio.sleep(0.01)
        else:
            return


async def test_an_answer_that_cannot_be_loaded_is_its_callers_error_at_once(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(parse_address(postgres.url), 1)
    unheard: list[None] = []

    class Unable:
        def __init__(self, _: object) -> None:
            """As psycopg's own."""

        def set_pgresult(self, *_: object, **__: object) -> None:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    with monkeypatch.context() as patched:
        patched.setattr(of_calls, "Transformer", Unable)
        with pytest.raises(UnicodeDecodeError):
            await calls.call(b"SELECT 1", (), lambda: unheard.append(None))
    assert unheard == [None], "it may have been committed"
    assert await calls.call(b"SELECT 1", ()) == [(1,)], "the line was closed, and is replaced"
    await calls.close()


async def test_a_call_that_fails_says_so_and_is_made_the_plain_way(
    store: PostgresStore, postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    now = store.clock.now()
    await store.put([new("m", due=now)], now)
    schema = schema_of(store)
    postgres.sql(f"ALTER FUNCTION {schema}.lock_turns RENAME TO lock_none")
    postgres.sql(f"INSERT INTO {schema}.keyed_routes VALUES ('x', 1, 0)")
    claim = await store.claim("r", 10, LEASE, now)
    with caplog.at_level(logging.WARNING, "penstock.stores.postgres"):
        states = await store.settle([ending(m, claim.token) for m in claim.messages], now)
    assert states == [State.DELIVERED]
    (line,) = [one.getMessage() for one in caplog.records if "deliver_" in one.getMessage()]
    assert "lock_turns" in line
    assert "in a thread" in line


async def test_a_function_that_is_missing_is_not_called_again_for_a_minute(
    store: PostgresStore,
    postgres: PostgresServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    postgres.sql(f"DROP FUNCTION {schema_of(store)}.claim_due")
    await claims_in_a_thread_after_one_call(store, caplog, monkeypatch)


async def test_a_function_that_may_not_be_called_is_not_called_again_for_a_minute(
    store: PostgresStore,
    postgres: PostgresServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = schema_of(store)
    postgres.sql(
        f"CREATE ROLE hired LOGIN; GRANT USAGE ON SCHEMA {schema} TO hired;"
        f" GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO hired;"
        f" GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO hired;"
        f" REVOKE EXECUTE ON FUNCTION {schema}.claim_due FROM PUBLIC"
    )
    url = with_schema(postgres.url.replace("penstock@", "hired@"), schema)
    opened = await open_store(
        url, total_partitions=8, retention=DAY_MS, retention_count=MANY, clock=None
    )
    assert isinstance(opened.messages, PostgresStore)
    await claims_in_a_thread_after_one_call(opened.messages, caplog, monkeypatch)
    await opened.close()
    postgres.sql("DROP OWNED BY hired; DROP ROLE hired")


async def claims_in_a_thread_after_one_call(
    store: PostgresStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bytes] = []
    call = Calls.call

    async def counted(self: Calls, statement: bytes, *rest: Any) -> list[Any]:
        made.append(statement)
        return await call(self, statement, *rest)

    monkeypatch.setattr(Calls, "call", counted)
    now = store.clock.now()
    with caplog.at_level(logging.WARNING, "penstock.stores.postgres"):
        for _ in range(3):
            await store.put([new(due=now)], now)
            assert len((await store.claim("r", 10, LEASE, now)).messages) == 1
    assert len(made) == 1
    (line,) = [one.getMessage() for one in caplog.records if "claim_due" in one.getMessage()]
    assert "in 60 s" in line


def schema_of(store: PostgresStore) -> str:
    return store.name.partition("schema=")[2]
