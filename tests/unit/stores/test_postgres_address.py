"""Addresses of PostgreSQL: what is ours is taken out, the rest is libpq's."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from penstock.model.errors import ConfigError, StoreCorrupt, StoreUnavailable
from penstock.stores.postgres import scratch_url
from penstock.stores.postgres.address import parse_address
from penstock.stores.postgres.errors import translate
from penstock.stores.postgres.session import STATEMENTS


def test_what_is_not_ours_goes_to_libpq_as_it_is() -> None:
    address = parse_address(
        "postgres://ann:hush@one,two:6432/shop?sslmode=verify-full&target_session_attrs=read-write"
        "&schema=jobs&connections=9&passfile=%2Fetc%2Fpass"
    )
    given = conninfo_to_dict(address.conninfo)
    assert (address.schema, address.connections) == ("jobs", 9)
    assert given["host"] == "one,two"
    assert (given["password"], given["sslmode"]) == ("hush", "verify-full")
    assert (given["target_session_attrs"], given["passfile"]) == ("read-write", "/etc/pass")
    assert "schema" not in given


@pytest.mark.parametrize(
    ("query", "hint"),
    [("listens_at=h:1", "did you mean listen?"), ("foo=1", "no option 'foo'. There")],
)
def test_an_option_that_nobody_knows_is_named(query: str, hint: str) -> None:
    with pytest.raises(ConfigError, match="store: no option") as refused:
        parse_address(f"postgresql://ann:hush@one,two/shop?{query}")
    assert hint in refused.value.message
    assert "hush" not in refused.value.message


def test_hosts_without_ports_are_named_with_the_usual_one() -> None:
    assert parse_address("postgresql://one,two/shop").name == (
        "postgresql://one:5432,two:5432/shop?schema=penstock"
    )


def test_the_listener_may_go_past_a_pooler() -> None:
    assert (
        parse_address("postgresql://h/db").for_listening
        == parse_address("postgresql://h/db").conninfo
    )
    address = parse_address("postgresql://ann:hush@pool:6432/shop?sslmode=require&listen=db:5433")
    there = conninfo_to_dict(address.for_listening)
    assert (there["host"], there["port"], there["user"]) == ("db", "5433", "ann")
    assert (there["dbname"], there["sslmode"]) == ("shop", "require")
    assert conninfo_to_dict(address.conninfo)["host"] == "pool"
    plain = conninfo_to_dict(parse_address("postgresql://pool:6432/db?listen=one").for_listening)
    assert (plain["host"], plain["port"]) == ("one", "5432")


def test_the_name_has_no_user_and_no_password() -> None:
    address = parse_address("postgresql://ann:hush@one:1,two:2/shop")
    assert address.name == "postgresql://one:1,two:2/shop?schema=penstock"
    assert parse_address("postgresql:///?service=shop").name.startswith("postgresql://service=shop")


def test_a_password_may_have_an_at_sign_as_in_every_other_address() -> None:
    address = parse_address("postgresql://ann:hush@hush@one/shop")
    given = conninfo_to_dict(address.conninfo)
    assert (given["user"], given["password"], given["host"]) == ("ann", "hush@hush", "one")
    assert "hush" not in address.name + repr(address)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/db?schema=Shop",
        "postgresql://h/db?schema=pg_shop",
        "postgresql://h/db?schema=a;b",
        "postgresql://h/db?connections=0",
        "postgresql://h/db?connections=many",
        "postgresql://h/db?listen=h2/other",
        "postgresql://h/db?listen=h:port",
        "postgresql://ann:hush@h/db?colour=red",
    ],
)
def test_what_cannot_work_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_address(url)
    assert "hush" not in str(refused.value)


def test_a_place_to_try_things_in_is_a_schema_beside_ours() -> None:
    assert scratch_url("postgresql://h/db?sslmode=require", "bench-1").endswith(
        "?sslmode=require&schema=penstock_bench_1"
    )


def test_errors_say_what_to_do() -> None:
    assert isinstance(translate(psycopg.OperationalError("gone"), "s"), StoreUnavailable)
    assert isinstance(translate(psycopg.ProgrammingError("bug"), "s"), StoreCorrupt)
    assert isinstance(translate(psycopg.errors.DiskFull("full"), "s"), StoreUnavailable)
    missing = translate(psycopg.errors.UndefinedTable("x"), "s")
    assert isinstance(missing, ConfigError)
    assert "store migrate" in missing.message


def test_no_statement_is_left_with_a_name_in_braces() -> None:
    left = {name for name, text in STATEMENTS.items() if "{" in text.replace("{where}", "")}
    assert left <= {"above_floor", "due_head", "next_head", "next_turn", "of_key", "take_turn"}
