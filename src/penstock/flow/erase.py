"""ERASE: everything the store keeps about one key is removed, in bounded steps."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.flow.policies import Policies
from penstock.model.message import Message
from penstock.model.outcome import Action, Amendment, Answer
from penstock.model.query import Filter, decode_cursor, encode_cursor
from penstock.model.state import State
from penstock.model.view import Erased
from penstock.ports.store import MessageStore

log = logging.getLogger("penstock.erase")

STEP = 100
"""Messages of one page: they are read with their payloads."""
PAGES = 100
"""Pages per call; a call that needs more returns the cursor of the next one."""


class Erase:
    """Removes the messages of a key, with their timelines, and its counters.

    Suppression lists keep the key: an opt-out has to outlive the erasure that follows it. Waiting
    rooms know visitors by their own names, not by keys of messages.
    """

    def __init__(self, store: MessageStore, policies: Policies | None) -> None:
        self._store = store
        self._policies = policies
        self.has_pending = False
        """This process has left some for the end of their leases."""

    async def all_of(self, key: str) -> Erased:
        """Erase every message of the key, in as many calls as it takes."""
        erased = await self.erase(key)
        while erased.next is not None:
            erased = erased.and_then(await self.erase(key, erased.next))
        return erased

    async def erase(self, key: str, after: str | None = None) -> Erased:
        """Erase the messages of the key found in at most PAGES pages of the search, from a cursor
        on.

        A search may miss a message that changes its state during it, so the search is repeated
        until one finds nothing to remove.
        """
        pending: set[str] = set()
        messages = removed = 0
        cursor = None if after is None else decode_cursor(after)
        for _ in range(PAGES):
            page = await self._store.search(Filter(key=key), cursor, STEP)
            being_sent = [message.id for message in page.items if message.state is State.LEASED]
            if being_sent:  # noted before they are stopped: a crash in between forgets none
                await self._store.erasures(add=being_sent)
            gone, leased = await self._remove([message.id for message in page.items])
            pending.update(leased)
            removed += len(gone)
            cursor = page.next
            if cursor is None:
                messages, removed = messages + removed, 0
                if not gone:
                    break
        messages += removed
        counters = 0 if cursor is not None else await self._forget_counters(key)
        log.info(
            "erased %d messages and %d counters of a key; %d messages are being sent and go later",
            messages,
            counters,
            len(pending),
        )
        return Erased(
            key=key,
            messages=messages,
            counters=counters,
            pending=len(pending),
            next=None if cursor is None else encode_cursor(cursor),
        )

    async def sweep(self) -> None:
        """Remove the noted messages whose leases have ended."""
        waiting = await self._store.erasures()
        if waiting:
            gone, leased = await self._remove(waiting)
            waiting = await self._store.erasures(remove=sorted(set(waiting) - set(leased)))
            for key in {message.key for message in gone}:
                await self._forget_counters(key)
        self.has_pending = bool(waiting)

    async def _remove(self, ids: Sequence[str]) -> tuple[list[Message], list[str]]:
        """Return the removed messages, and the ids of leased ones that are noted for later."""
        if not ids:
            return [], []
        asked = [Amendment(action=Action.ERASE, id=one) for one in ids]
        answers = await self._store.amend(asked, self._store.clock.now())
        found = [answer.message for answer in answers if answer.message is not None]
        leased = [message.id for message in found if message.state is State.LEASED]
        if leased:
            await self._store.erasures(add=leased)
            self.has_pending = True
        done = [one.message for one in answers if one.answer is Answer.DONE]
        return [message for message in done if message is not None], leased

    async def _forget_counters(self, key: str) -> int:
        return 0 if self._policies is None else await self._policies.forget(key)
