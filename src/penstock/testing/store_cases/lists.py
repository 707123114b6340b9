"""SEARCH and FIGURES: pages in order, against a filter in plain Python."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import product

from penstock.model.message import Message
from penstock.model.outcome import Action
from penstock.model.query import Cursor, Filter, decode_cursor, encode_cursor
from penstock.model.size import PAGE_BYTES
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.testing.store_cases.base import (
    FAR,
    StoreCases,
    amend,
    claim,
    claim_one,
    ending,
    listed,
    new,
    put,
    put_due,
    settle,
)

_AT_ONCE = 16
"""Read-only searches that run at the same time."""
_ROUTES = ("alpha", "beta")
_ENDS = (
    State.DELIVERED,
    State.DEAD,
    State.BLOCKED,
    State.EXPIRED,
    State.SCHEDULED,
    State.LEASED,
)


def matches(message: Message, where: Filter) -> bool:
    """The reference implementation of the filter."""
    return (
        (where.state is None or message.state is where.state)
        and (where.route is None or message.route == where.route)
        and (where.key is None or message.key == where.key)
        and (where.due_from is None or message.due >= where.due_from)
        and (where.due_to is None or message.due < where.due_to)
        and (where.error is None or where.error in (message.last_error or ""))
    )


async def _mixed(store: MessageStore) -> list[Message]:
    """Messages in every state, on two routes, with shared keys and equal dues."""
    now = store.clock.now()
    ids: list[str] = []
    for number, (route, end) in enumerate(product(_ROUTES, _ENDS)):
        batch = [
            new(
                f"{route}-{end.value}-{place}",
                due=now - 100 + (number * 7 + place * 3) % 10,
                route=route,
                key=f"key-{place % 3}" if place % 4 else f"{route}-{end.value}-{place}",
                priority=place % 10,
            )
            for place in range(6)
        ]
        await put(store, *batch)
        ids += [message.id for message in batch]
        taken = await claim(store, route=route)
        error = f"{end.value} 50%_ *'\"" if end is not State.DELIVERED else None
        if end is not State.LEASED:
            due = now + FAR if end is State.SCHEDULED else None
            await settle(
                store,
                *(ending(m, taken.token, end, error=error, due=due) for m in taken.messages),
            )
    waiting = [new(f"wait-{place}", due=now + FAR, route="alpha") for place in range(8)]
    await put(store, *waiting)
    ids += [message.id for message in waiting]
    for message in waiting[:4]:
        await amend(store, Action.CANCEL, message.id)
    found = await store.find(ids)
    return [message for message in found if message is not None]


class SearchCases(StoreCases):
    async def test_every_combination_of_filters_finds_what_it_says(
        self, store: MessageStore
    ) -> None:
        everything = await _mixed(store)
        low = min(m.due for m in everything) + 4
        states: list[State | None] = [None, *State]
        keys = (None, "key-1", everything[0].id)
        choices = product(
            states, (None, "alpha"), keys, (None, low), (None, low + 3), (None, "50%_ *'\"", "dead")
        )
        of_nobody = product(states, ("nobody",), keys, (None,), (None,), (None,))
        filters = [
            Filter(state=state, route=route, key=key, due_from=since, due_to=until, error=error)
            for state, route, key, since, until, error in (*choices, *of_nobody)
        ]
        for first in range(0, len(filters), _AT_ONCE):
            some = filters[first : first + _AT_ONCE]
            lists = await asyncio.gather(*(listed(store, where, limit=50) for where in some))
            for where, found in zip(some, lists, strict=True):
                wanted = [m for m in everything if matches(m, where)]
                wanted.sort(key=lambda m: (m.due, m.id))
                assert found == wanted, where

    async def test_pages_of_any_size_give_the_same_list(self, store: MessageStore) -> None:
        wanted = sorted(await _mixed(store), key=lambda m: (m.due, m.id))
        for limit in (2, 7, len(wanted) - 1, len(wanted), len(wanted) + 1):
            assert await listed(store, Filter(), limit=limit) == wanted
        beta = [message for message in wanted if message.route == "beta"]
        assert await listed(store, Filter(route="beta"), limit=1) == beta

    async def test_a_page_ends_at_its_bytes_and_the_next_one_goes_on(
        self, store: MessageStore
    ) -> None:
        due = store.clock.now() + FAR
        payload = b'"' + b"x" * 250_000 + b'"'
        names = [f"m{place:02}" for place in range(30)]
        await put(store, *(new(name, due=due, payload=payload) for name in names[:15]))
        await put(store, *(new(name, due=due, payload=payload) for name in names[15:]))
        found: list[Message] = []
        cursor: Cursor | None = None
        pages = 0
        while cursor is not None or not pages:
            page = await store.search(Filter(), cursor, 1_000)
            assert 0 < sum(len(m.payload) for m in page.items) <= PAGE_BYTES
            found += page.items
            cursor, pages = page.next, pages + 1
        assert [m.id for m in found] == names
        assert pages == 2

    async def test_a_cursor_survives_its_text_form(self, store: MessageStore) -> None:
        due = store.clock.now() + FAR
        await put(store, *(new(f"m{place}", due=due) for place in range(4)))
        first = await store.search(Filter(), None, 2)
        assert first.next is not None
        cursor = decode_cursor(encode_cursor(first.next))
        rest = await store.search(Filter(), cursor, 2)
        assert [m.id for m in first.items + rest.items] == ["m0", "m1", "m2", "m3"]

    async def test_a_cursor_whose_message_is_gone_still_holds_the_place(
        self, store: MessageStore
    ) -> None:
        due = store.clock.now() + FAR
        await put(store, new("a", due=due), new("c", due=due), new("d", due=due + 1))
        page = await store.search(Filter(), Cursor(due, "b"), 10)
        assert [m.id for m in page.items] == ["c", "d"]

    async def test_changes_behind_and_ahead_do_not_disturb_a_walk(
        self, store: MessageStore
    ) -> None:
        due = store.clock.now() + FAR
        await put(store, *(new(f"m{place:02}", due=due + place) for place in range(0, 40, 2)))
        seen: list[str] = []
        cursor: Cursor | None = None
        where = Filter(state=State.SCHEDULED)
        for step in range(100):
            page = await store.search(where, cursor, 4)
            seen += [m.id for m in page.items]
            if page.next is None:
                break
            cursor = page.next
            await put(store, new(f"behind{step}", due=due - 1), new(f"z{step}", due=due + 39))
            for message in page.items:
                await amend(store, Action.CANCEL, message.id)
        kept = [message_id for message_id in seen if message_id.startswith("m")]
        assert kept == [f"m{place:02}" for place in range(0, 40, 2)]
        assert len(seen) == len(set(seen))

    async def test_many_messages_of_one_moment_are_paged_by_id(self, store: MessageStore) -> None:
        due = store.clock.now() + FAR
        messages = [new(f"{place * 7919 % 300:03}", due=due) for place in range(300)]
        await put(store, *messages)
        found = await listed(store, Filter(state=State.SCHEDULED), limit=64)
        assert [m.id for m in found] == sorted(m.id for m in messages)


class FigureCases(StoreCases):
    async def test_an_empty_store_counts_nothing(self, store: MessageStore) -> None:
        figures = await store.figures(store.clock.now())
        assert sum(figures.states.values()) == 0
        assert not any(part.scheduled for part in figures.routes.values())

    async def test_figures_count_by_state_and_route(self, store: MessageStore) -> None:
        everything = await _mixed(store)
        late = await put_due(store, 3, route="alpha")
        now = store.clock.now()
        figures = await store.figures(now)
        messages = everything + [m for m in await store.find(late) if m is not None]
        counted = Counter(m.state for m in messages)
        assert {state: figures.states.get(state, 0) for state in State} == {
            state: counted[state] for state in State
        }
        for route in _ROUTES:
            mine = [m for m in messages if m.route == route]
            waiting = [m.due for m in mine if m.state is State.SCHEDULED]
            part = figures.routes[route]
            assert part.scheduled == len(waiting)
            assert part.overdue == sum(due <= now for due in waiting)
            assert part.next_due == min(waiting)
            assert part.leased == sum(m.state is State.LEASED for m in mine)
            assert part.dead == sum(m.state is State.DEAD for m in mine)

    async def test_figures_follow_a_lease_to_its_end(self, store: MessageStore) -> None:
        message, token = await claim_one(store)
        figures = await store.figures(store.clock.now())
        assert (figures.routes["r"].leased, figures.routes["r"].scheduled) == (1, 0)
        await settle(store, ending(message, token))
        figures = await store.figures(store.clock.now())
        assert figures.states[State.DELIVERED] == 1
        assert figures.states.get(State.LEASED, 0) == 0

    async def test_check_tells_facts_as_text(self, store: MessageStore) -> None:
        facts = await store.check()
        assert facts
        assert all(isinstance(value, str) for value in facts.values())
        assert store.name
