"""`penstock size` reckons from the measured figures, and its page says the same."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from bench import size_page
from penstock.cli.size.plan import (
    FORK_ROOM,
    MONTH_SECONDS,
    READS,
    WRITES,
    Answer,
    Line,
    Load,
    Prices,
    count,
    figures,
    kind_of,
    per_second,
    plan,
)
from penstock.model.errors import InvalidMessage

LOAD = Load(50_000, 200_000_000)


def line(answer: Answer, what: str) -> Line:
    return next(one for one in answer.lines if one.what == what)


@pytest.mark.parametrize(
    ("text", "number"), [("20000", 20_000), ("1.5k", 1_500), ("200M", 200_000_000), ("1G", 10**9)]
)
def test_a_number_is_read_as_people_write_it(text: str, number: int) -> None:
    assert count(text, "pending") == number


@pytest.mark.parametrize(
    ("text", "rate"), [("50k/s", 50_000), ("3M/h", 3e6 / 3600), ("864k/d", 10), ("90/m", 1.5)]
)
def test_a_rate_is_read_as_people_write_it(text: str, rate: float) -> None:
    assert per_second(text) == rate


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the unit of time is missing: write 50k/s"),
        ("50k", "the unit of time is missing: write 50k/s"),
        ("1/y", "'y' is no unit of time: write 50k/s"),
        ("0/s", "must be more than 0, such as 50k/s"),
        ("-1/s", "must be a number such as"),
        ("k/s", "must be a number such as"),
        ("1e9/s", "must be a number such as"),
    ],
)
def test_what_is_no_rate_is_refused_with_an_example(text: str, why: str) -> None:
    with pytest.raises(InvalidMessage, match=why):
        per_second(text)


@pytest.mark.parametrize(
    ("store", "kind"),
    [
        ("redis", "redis"),
        ("redis+cluster://h:1,h:2", "redis"),
        ("sqlite:///x.db", "sqlite"),
        ("dynamodb+redis://h/0", "dynamodb"),
    ],
)
def test_a_store_is_named_by_its_kind_or_its_address(store: str, kind: str) -> None:
    assert kind_of(store) == kind


def test_an_unknown_store_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidMessage, match="sqlite, redis, postgresql, dynamodb"):
        plan(replace(LOAD, store="mysql"))


def test_processes_are_rate_times_cpu_over_how_busy_a_core_may_be() -> None:
    cpu = figures().stores["postgresql"].cpu
    workers = line(plan(replace(LOAD, store="postgresql", busy=0.5)), "workers")
    assert workers.amount == math.ceil(50_000 * cpu.release / 1e6 / 0.5)


def test_memory_is_what_is_pending_and_what_is_known() -> None:
    known = figures().stores["redis"].bytes
    answer = plan(replace(LOAD, payload=500, retention="1h", retention_count=10**6))
    data = 200_000_000 * (known.pending + 400 * known.per_payload) + 10**6 * known.settled
    assert line(answer, "data in memory").amount == pytest.approx(data / 1e9)
    assert line(answer, "memory of all primaries").amount == pytest.approx(data * FORK_ROOM / 1e9)


def test_retention_ends_by_time_or_by_number_whichever_is_fewer() -> None:
    assert replace(LOAD, retention="10s").settled == 500_000
    assert replace(LOAD, retention="24h").settled == 1_000_000


def test_a_small_load_takes_one_redis_server_and_a_large_one_a_cluster_of_three_at_least() -> None:
    assert line(plan(Load(1_000, 100_000)), "Redis, servers").amount == 1
    large = plan(Load(1_000, 100_000_000, node_memory=20 * 10**9))
    assert line(large, "Redis Cluster, nodes").amount >= 3
    assert line(large, "total_partitions").amount >= 12


def test_twice_the_load_takes_about_twice_as_much() -> None:
    once, twice = plan(LOAD), plan(replace(LOAD, rate=100_000, pending=400_000_000))
    for what in ("workers", "Redis Cluster, nodes", "network, processes and store"):
        ratio = line(twice, what).amount / line(once, what).amount
        assert 1.5 <= ratio <= 2.0, what


def test_dynamodb_costs_units_times_prices() -> None:
    load = Load(1_000, 10**6, "dynamodb", prices=Prices(write=1.0, read=0.5, storage=2.0))
    answer = plan(load)
    millions = 1_000 * MONTH_SECONDS / 1e6
    assert line(answer, "requests a month").amount == pytest.approx(
        millions * (WRITES * 1.0 + READS * 0.5)
    )
    stored = line(answer, "data in DynamoDB").amount
    assert line(answer, "storage a month").amount == pytest.approx(stored * 2.0)
    assert "given by flags" in answer.notes[-1]


def test_published_prices_are_named_with_their_date() -> None:
    note = plan(Load(1_000, 10**6, "dynamodb")).notes[-1]
    assert figures().prices.date in note
    assert "aws.amazon.com" in note


def test_more_than_one_process_of_sqlite_is_said_plainly() -> None:
    most = line(plan(Load(10**6, 10**6, "sqlite")), "processes")
    assert most.text == "more than one process can do"
    assert most.amount > 1


def test_every_answer_says_what_it_was_measured_on() -> None:
    for store in ("sqlite", "redis", "postgresql", "dynamodb"):
        note = plan(replace(LOAD, store=store)).notes[0]
        assert figures().when in note
        assert figures().machine in note


def test_the_page_has_the_figures_and_answers_of_the_calculator() -> None:
    assert size_page.region(figures()) in size_page.PAGE.read_text(), "run: python -m bench size"


def test_the_pages_examples_are_the_loads_of_their_commands() -> None:
    for command, load in size_page.EXAMPLES.items():
        words = command.split()
        given = dict(zip(words[2::2], words[3::2], strict=True))
        assert per_second(given["--rate"]) == load.rate
        assert count(given["--pending"], "pending") == load.pending
        assert given["--store"] == load.store
        assert int(given.get("--payload", 100)) == load.payload
