"""Calls of several processes on the same few messages: each answer fits into one order of all."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.model.message import Message, NewMessage
from penstock.model.outcome import Action, Amended, Amendment, Answer, Receipt, Settlement
from penstock.model.state import State
from systems.servers.dynamodb import DynamoServer
from systems.servers.redis import RedisServer
from tests.faults.histories import (
    Amends,
    Found,
    Put,
    Settled,
    Step,
    Took,
    id_of,
    order_of,
    told,
)
from tests.integration.sqlite_files import ENVIRONMENT

PROCESSES = 3
ROUNDS = 10
SEEDS = (1, 2, 3)

_decode = msgspec.json.Decoder(Step).decode


class Caller:
    """One process that calls the store."""

    def __init__(self, stack: ExitStack, url: str, name: str, seed: int) -> None:
        self._process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "tests.faults.history_caller", url, name, str(seed)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=ENVIRONMENT,
            )
        )

    def ready(self) -> None:
        assert list(self._lines(b"ready\n")) == []

    def begin(self, group: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(group.encode() + b"\n")
        self._process.stdin.flush()

    def steps(self) -> list[Step]:
        return [_decode(line) for line in self._lines(b"done\n")]

    def _lines(self, until: bytes) -> Iterator[bytes]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == until:
                return
            yield line
        raise AssertionError("a caller ended: see its error above")


def play(url: str, seed: int, rounds: int = ROUNDS) -> list[Step]:
    """Several processes, round by round, each on new messages."""
    steps: list[Step] = []
    with ExitStack() as stack:
        callers = [Caller(stack, url, f"p{n}", seed) for n in range(PROCESSES)]
        for caller in callers:
            caller.ready()
        for number in range(rounds):
            for caller in callers:
                caller.begin(f"s{seed}r{number}")
            for caller in callers:
                steps += caller.steps()
    return steps


def check(steps: Sequence[Step]) -> None:
    by_id: dict[str, list[Step]] = defaultdict(list)
    for step in steps:
        by_id[id_of(step)].append(step)
    for message_id, own in by_id.items():
        assert order_of(own) is not None, f"no order explains {message_id}:\n{told(own)}"
    kinds = {type(step) for step in steps}
    print(f"{len(steps)} calls on {len(by_id)} messages")
    assert len(steps) > 50, "a history that proves nothing"
    assert {Put, Took, Settled, Amends} <= kinds


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_on_sqlite_has_an_order(tmp_path: Path, seed: int) -> None:
    check(play(f"sqlite:///{tmp_path / 'a.db'}", seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_on_redis_has_an_order(redis: RedisServer, seed: int) -> None:
    check(play(redis.url, seed))


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_a_history_on_dynamodb_has_an_order(
    dynamodb: DynamoServer, redis: RedisServer, seed: int
) -> None:
    table = f"histories-{seed}"
    dynamodb.make_table(table)
    check(play(dynamodb.url(table, redis.url, timeout="30s"), seed, rounds=3))


# --- the checker itself

NEW = NewMessage(id="a", route="r", key="a", payload=b"first", due=1)


def at(start: int, end: int) -> dict[str, Any]:
    return {"caller": "x", "start": start, "end": end, "now": 10}


def put(start: int, end: int) -> Put:
    return Put(**at(start, end), new=NEW, receipt=Receipt("a", State.SCHEDULED, 1))


def message(state: State, *, version: int = 1, attempt: int = 0) -> Message:
    return Message(
        id="a",
        route="r",
        key="a",
        payload=b"" if state is State.DELIVERED else b"first",
        due=1,
        state=state,
        version=version,
        attempt=attempt,
        created=1,
    )


def took(start: int, end: int, token: int, attempt: int = 1) -> Took:
    leased = message(State.LEASED, attempt=attempt)
    return Took(**at(start, end), message=leased, token=token, until=99)


def settled(start: int, end: int, token: int, state: State | None = State.DELIVERED) -> Settled:
    lease = Settlement(message(State.LEASED), token, State.DELIVERED, "delivered")
    return Settled(**at(start, end), settlement=lease, state=state)


def cancelled(start: int, end: int, answer: Answer) -> Amends:
    done = message(State.CANCELLED, version=2) if answer is Answer.DONE else None
    amendment = Amendment(action=Action.CANCEL, id="a")
    return Amends(**at(start, end), amendment=amendment, amended=Amended(answer, done))


def test_calls_beside_each_other_may_have_happened_in_any_order() -> None:
    assert order_of([put(0, 1), cancelled(2, 9, Answer.RELEASED), took(3, 8, 7)]) is not None
    assert order_of([put(0, 5), took(1, 2, 7), settled(3, 4, 7)]) is not None


@pytest.mark.parametrize(
    "history",
    [
        [put(0, 1), took(2, 3, 7), took(4, 5, 8, attempt=2)],
        [put(0, 1), took(2, 5, 7), took(3, 4, 8)],
        [put(0, 1), cancelled(2, 3, Answer.DONE), took(4, 5, 7)],
        [put(0, 1), took(2, 3, 7), settled(4, 5, 7), settled(6, 7, 7)],
        [put(0, 1), took(2, 3, 7), settled(4, 5, 8)],
        [put(0, 1), took(2, 3, 7), settled(4, 5, 7, None)],
        [put(0, 1), took(2, 3, 7), Found(**at(4, 5), id="a", message=message(State.SCHEDULED))],
        [put(0, 1), Found(**at(2, 3), id="a", message=None)],
        [put(0, 1), put(2, 3)],
        [cancelled(0, 1, Answer.DONE), put(2, 3)],
    ],
    ids=[
        "claimed twice",
        "claimed twice at once",
        "claimed though cancelled",
        "settled twice",
        "settled with a token that never was",
        "refused though its token holds",
        "read as it was before",
        "read as not there",
        "put as new twice",
        "cancelled before it was put",
    ],
)
def test_a_history_that_breaks_a_rule_has_no_order(history: list[Step]) -> None:
    assert order_of(history) is None
    assert told(history).count("\n") == len(history) - 1
