"""ERASE: no message of a key is left, whatever state it was in."""

from __future__ import annotations

from penstock.flow.erase import Erase
from penstock.flow.policies import Policies
from penstock.model.decision import Conclusion, End
from penstock.model.policy import policy_from
from penstock.model.query import Filter
from penstock.model.state import SETTLED, State
from penstock.ports.store import MessageStore, Store
from penstock.testing.store_cases.base import (
    FAR,
    StoreCases,
    claim,
    claim_one,
    ending,
    listed,
    new,
    put,
    settle,
)


async def _one_in_every_state(store: MessageStore, key: str) -> int:
    """Put messages of this key in every state but leased; returns their number."""
    now = store.clock.now()
    for state in SETTLED:
        message, token = await claim_one(store, key=key)
        await settle(store, ending(message, token, state, error="because"))
    waiting = [new(due=now + ahead, key=key) for ahead in (0, 1, FAR, 40 * FAR)]
    await put(store, *waiting, new(f"{key}-as-id", due=now + FAR, key=key))
    return len(SETTLED) + len(waiting) + 1


class EraseCases(StoreCases):
    async def test_everything_of_a_key_is_erased_and_nothing_of_another(
        self, store: MessageStore
    ) -> None:
        number = await _one_in_every_state(store, "one")
        assert await _one_in_every_state(store, "two") == number
        await put(store, new("one", due=store.clock.now() + FAR))  # its key is its id
        erased = await Erase(store, None).erase("one")
        assert (erased.messages, erased.pending, erased.next) == (number + 1, 0, None)
        assert await listed(store, Filter(key="one")) == []
        assert len(await listed(store, Filter(key="two"))) == number
        figures = await store.figures(store.clock.now())
        assert sum(figures.states.values()) == number
        assert [m.key for m in (await claim(store)).messages] == ["two"] * 2

    async def test_what_is_being_sent_is_erased_when_its_lease_has_ended(
        self, store: MessageStore
    ) -> None:
        erase = Erase(store, None)
        message, token = await claim_one(store, key="one")
        assert (await erase.erase("one")).pending == 1
        await erase.sweep()
        assert [m.state for m in await listed(store, Filter(key="one"))] == [State.LEASED]
        assert await settle(store, ending(message, token)) == [State.DELIVERED]
        await erase.sweep()
        assert await listed(store, Filter()) == []
        assert await store.erasures() == []

    async def test_the_counters_of_a_key_are_dropped_and_those_of_others_stay(
        self, opened: Store, store: MessageStore
    ) -> None:
        if opened.policies is None:
            return  # a store need not have policies
        policies = Policies(opened.policies, store.clock)
        cap = {"kind": "cap", "scope": ["key"], "limit": 1, "window": "1h"}
        await policies.put({"hourly": policy_from(cap)})
        now = store.clock.now()
        messages = {}
        for key in ("one", "two"):
            messages[key], _ = await claim_one(store, key=key)
        allowed = await policies.decide(list(messages.values()), now, 60_000)
        assert [decision.verdict for decision in allowed] == ["ALLOW", "ALLOW"]
        sent = [Conclusion(message, End.COMMIT) for message in messages.values()]
        await policies.conclude(sent, now)
        assert await policies.forget("one") == 1
        assert await policies.forget("one") == 0
        assert [figure.used for figure in await policies.counters("one")] == [0]
        assert [figure.used for figure in await policies.counters("two")] == [1]
