"""Messages with several keys: no key over a cap, and a refusal that changes nothing."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.flow import several
from penstock.flow.conclude import shares
from penstock.model.decision import Decision, Question
from penstock.model.message import Labels
from penstock.model.outcome import Dead, Retry
from penstock.model.policy import Policy
from penstock.model.state import State
from penstock.model.verdict import Verdict
from penstock.stores.memory.policies import MemoryPolicies
from penstock.testing import policy_worlds as worlds
from penstock.testing.several_keys import check_all_or_nothing, message
from tests.unit.flow.rig import Engine, used
from tests.unit.limits.test_invariants import counters, opened

asked = st.lists(
    st.tuples(st.lists(worlds.keys, min_size=1, max_size=3, unique=True).map(tuple), worlds.routes),
    min_size=1,
    max_size=8,
)


@settings(max_examples=50)
@given(worlds.books, asked)
async def test_a_batch_is_the_same_as_one_by_one(
    policies: dict[str, Policy], batch: list[tuple[tuple[str, ...], str]]
) -> None:
    together, apart = await opened(policies), await opened(policies)
    now = worlds.START
    messages = [message(f"m{n}", keys, now, route) for n, (keys, route) in enumerate(batch)]
    one_by_one: list[Decision] = []
    for one in messages:
        one_by_one += await several.decide(apart, [one], now, worlds.HOLD)
    assert await several.decide(together, messages, now, worlds.HOLD) == one_by_one
    assert counters(together.books) == counters(apart.books)


@settings(max_examples=50)
@given(worlds.books, asked)
async def test_a_refusal_leaves_counters_unchanged(
    policies: dict[str, Policy], batch: list[tuple[tuple[str, ...], str]]
) -> None:
    store = await opened(policies)
    now = worlds.START
    for number, (keys, route) in enumerate(batch):
        before = _counting(deepcopy(store))
        one = message(f"m{number}", keys, now, route)
        (decision,) = await several.decide(store, [one], now, worlds.HOLD)
        if decision.verdict is not Verdict.ALLOW:
            assert _counting(deepcopy(store)) == before


def _counting(store: MemoryPolicies) -> bytes:
    """Counters in which something counts; one that was opened and left empty says nothing."""
    for account in store.books.accounts.values():
        for name in [name for name, c in account.items() if not (c.times or c.counts or c.held)]:
            del account[name]
    accounts = store.books.accounts
    store.books.accounts = {name: account for name, account in accounts.items() if account}
    return counters(store.books)


async def test_an_explanation_names_the_key_that_binds() -> None:
    store = MemoryPolicies()
    await check_all_or_nothing(store, worlds.START)
    question = Question(key="zoe", due=worlds.START, labels=Labels(keys=("yan", "cid")))
    before = counters(store.books)
    (decision,) = await several.explain(store, [question], worlds.START)
    assert (decision.verdict, decision.key) == (Verdict.BLOCK, "cid")
    assert counters(store.books) == before


def test_the_ids_of_shares_are_their_messages_own() -> None:
    one = message("m", ("ann", "bob", "cid"), 0)
    assert [(share.id, share.key) for share in shares(one)] == [
        ("m", "ann"),
        ("m\n+1", "bob"),
        ("m\n+2", "cid"),
    ]


async def test_a_message_waits_while_any_of_its_keys_is_over_a_cap(engine: Engine) -> None:
    await engine.put_policies(brief={"kind": "cap", "scope": ["key"], "limit": 1, "window": "1m"})
    await engine.schedule(id="first", key="bob")
    await engine.schedule(id="both", key="ann", labels={"keys": ["bob"]}, delay=1)
    async with engine.working():
        await engine.clock.advance(5_000)
        assert engine.sink.ids == ["first"]
        held = await engine.find("both")
        assert held.decided is not None
        assert (held.state, held.decided.policy) == (State.SCHEDULED, "brief")
        assert held.decided.detail == "1 of 1 in 1m, of bob"
        assert await used(engine, "ann") == 0
        await engine.clock.advance(60_000)
        assert engine.sink.ids == ["first", "both"]
        assert (await used(engine, "ann"), await used(engine, "bob")) == (1, 1)


async def test_every_key_keeps_its_place_over_retries_and_gives_it_back_at_the_end(
    engine: Engine,
) -> None:
    await engine.put_policies(daily={"kind": "cap", "scope": ["key"], "limit": 2, "window": "24h"})
    engine.sink.behave = lambda _: Retry("not now")
    await engine.schedule(id="m", key="ann", labels={"keys": ["bob", "cid"]})
    async with engine.working():
        await engine.clock.advance(1_000)
        assert [await used(engine, key) for key in ("ann", "bob", "cid")] == [1, 1, 1]
        engine.sink.behave = lambda _: Dead("never")
        await engine.clock.advance(120_000)
        assert await engine.state("m") is State.DEAD
    assert [await used(engine, key) for key in ("ann", "bob", "cid")] == [0, 0, 0]
