"""CONTROL: look up, cancel, reschedule, release, redrive, delete, pause: with a definite answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from penstock.flow.observe import Observer
from penstock.model.errors import AlreadyReleased, InvalidMessage, UnknownMessage, VersionConflict
from penstock.model.message import Event, Message
from penstock.model.outcome import Action, Amended, Amendment, Answer
from penstock.model.query import Cursor, Filter, Page
from penstock.model.size import PAGE_BYTES, total_size
from penstock.model.state import State
from penstock.model.times import format_moment
from penstock.model.view import BulkResult
from penstock.ports.store import MessageStore

LOOKS = 8
"""Searches of the store that one page of a list may take."""
BULK = 500
"""Messages a bulk change touches in one store call."""


Chosen: TypeAlias = Callable[[Message], bool]
"""Decides which of the messages that match a filter a bulk change applies to."""


def _every(_: Message) -> bool:
    return True


class Control:
    """The operations that people and programs run on messages already accepted."""

    def __init__(self, store: MessageStore, observer: Observer) -> None:
        self._store = store
        self._observer = observer

    async def get(self, message_id: str) -> tuple[Message, list[Event]]:
        """Return the message and its timeline; UnknownMessage if there is none."""
        found = await self._store.get(message_id)
        if found is None:
            raise UnknownMessage(message_id)
        return found

    async def find(self, ids: Sequence[str]) -> list[Message]:
        """Return the messages among `ids` that exist."""
        return [message for message in await self._store.find(ids) if message is not None]

    async def search(self, where: Filter, after: Cursor | None = None, limit: int = 100) -> Page:
        """Return a page of `limit` messages, searching again while the store finds none among many
        records.

        The page is shorter when no more match, when it reaches PAGE_BYTES, or (`cut`) when LOOKS
        searches did not fill it; `next` continues behind it.
        """
        page = await self._store.search(where, after, limit)
        items = page.items
        for _ in range(LOOKS - 1):
            enough = len(items) >= limit or total_size(items) >= PAGE_BYTES
            if not page.cut or page.next is None or enough:
                break
            page = await self._store.search(where, page.next, limit - len(items))
            items = sorted(items + page.items, key=lambda item: (item.due, item.id))
        return Page(items, page.next, cut=page.cut and len(items) < limit)

    async def cancel(self, message_id: str, version: int | None = None) -> Message:
        """Cancelled, now or before; AlreadyReleased, UnknownMessage or VersionConflict if not."""
        return await self._one(Amendment(action=Action.CANCEL, id=message_id, version=version))

    async def reschedule(self, amendment: Amendment) -> Message:
        """Change due, payload, headers, expires, priority or labels of a waiting message."""
        if amendment.due is not None or amendment.expires is not None:
            await self._check_expires(amendment)
        return await self._one(amendment)

    async def release(self, message_id: str, version: int | None = None) -> Message:
        """Make it due now."""
        return await self._one(Amendment(action=Action.RELEASE, id=message_id, version=version))

    async def redrive(self, message_id: str, version: int | None = None) -> Message:
        """Send a dead message again, now."""
        return await self._one(Amendment(action=Action.REDRIVE, id=message_id, version=version))

    async def delete(self, message_id: str, version: int | None = None) -> Message:
        """Keep nothing of a dead message; the message as it was."""
        return await self._one(Amendment(action=Action.DELETE, id=message_id, version=version))

    async def remove(self, message_id: str, version: int | None = None) -> tuple[Message, bool]:
        """Cancel a message, or delete it if it is dead; and whether it was deleted."""
        try:
            return await self.cancel(message_id, version), False
        except AlreadyReleased as exc:
            if exc.state != State.DEAD:
                raise
        return await self.delete(message_id, version), True

    async def cancel_where(
        self, where: Filter, *, dry_run: bool = False, only: Chosen = _every
    ) -> BulkResult:
        """Cancel every scheduled message that matches; those that `only` refuses do not count."""
        return await self._bulk(
            _in_state(where, State.SCHEDULED, "cancelled"),
            lambda message, _: Amendment(action=Action.CANCEL, id=message.id),
            dry_run=dry_run,
            only=only,
        )

    async def release_where(
        self, where: Filter, *, dry_run: bool = False, only: Chosen = _every
    ) -> BulkResult:
        """Make everything that matches and is not due yet due now."""
        now = self._store.clock.now()
        ahead = max(now + 1, where.due_from or 0)  # a moved message is never met again
        return await self._bulk(
            msgspec.structs.replace(_in_state(where, State.SCHEDULED, "released"), due_from=ahead),
            lambda message, _: Amendment(action=Action.RESCHEDULE, id=message.id, due=now),
            dry_run=dry_run,
            only=only,
        )

    async def reschedule_where(
        self, where: Filter, due: int, *, dry_run: bool = False, only: Chosen = _every
    ) -> BulkResult:
        """Make every scheduled message that matches due at one moment.

        A message that is due at that moment already does not count as matched: a moved message that
        is met again behind the cursor looks like that. One that would have expired by then is
        matched and not changed.
        """

        def move(message: Message, _: int) -> Amendment | None:
            if message.expires is not None and message.expires <= due:
                return None
            return Amendment(action=Action.RESCHEDULE, id=message.id, due=due)

        return await self._bulk(
            _in_state(where, State.SCHEDULED, "rescheduled"),
            move,
            dry_run=dry_run,
            only=lambda message: message.due != due and only(message),
        )

    async def redrive_where(
        self,
        where: Filter,
        *,
        rate: float | None = None,
        dry_run: bool = False,
        only: Chosen = _every,
    ) -> BulkResult:
        """Redrive every dead message that matches, `rate` per second (None: all at once)."""
        where = _in_state(where, State.DEAD, "redriven")
        start = self._store.clock.now()
        gap = 0.0 if rate is None else 1000 / rate

        def redrive(message: Message, position: int) -> Amendment:
            due = start + int(position * gap)
            return Amendment(action=Action.REDRIVE, id=message.id, due=due)

        return await self._bulk(where, redrive, dry_run=dry_run, only=only)

    async def delete_where(
        self, where: Filter, *, dry_run: bool = False, only: Chosen = _every
    ) -> BulkResult:
        """Keep nothing of the dead that match."""
        return await self._bulk(
            _in_state(where, State.DEAD, "deleted"),
            lambda message, _: Amendment(
                action=Action.DELETE, id=message.id, version=message.version
            ),
            dry_run=dry_run,
            only=only,
        )

    async def pause(self, route: str, paused: bool) -> None:
        await self._store.pause(route, paused)

    async def _check_expires(self, amendment: Amendment) -> None:
        (held,) = await self._store.find([amendment.id])
        if held is None or held.state is not State.SCHEDULED:
            return  # the amendment itself gives the definite answer
        due = held.due if amendment.due is None else amendment.due
        expires = amendment.expires_then(held)
        if expires is not None and expires <= due:
            raise InvalidMessage("expires", f"must be after the due time {format_moment(due)}")

    async def _one(self, amendment: Amendment) -> Message:
        (amended,) = await self._amend([amendment])
        message = definite(amendment.id, amended)
        self._observer.count(amendment.action, message.route)
        return message

    async def _amend(self, amendments: Sequence[Amendment]) -> list[Amended]:
        with self._observer.asking("amend"):
            return await self._store.amend(amendments, self._store.clock.now())

    async def _bulk(
        self,
        where: Filter,
        amendment: Callable[[Message, int], Amendment | None],
        *,
        dry_run: bool,
        only: Chosen,
    ) -> BulkResult:
        """`amendment` may have none for a message it cannot be done to."""
        matched = done = 0
        cursor: Cursor | None = None
        while True:
            page = await self._store.search(where, cursor, BULK)
            items = [item for item in page.items if only(item)]
            if items and not dry_run:
                asked = [amendment(item, matched + i) for i, item in enumerate(items)]
                done += await self._apply([change for change in asked if change is not None])
            matched += len(items)
            cursor = page.next
            if cursor is None:
                return BulkResult(matched, done)

    async def _apply(self, changes: list[Amendment]) -> int:
        """Amend the messages and return how many changed."""
        done = 0
        answers = await self._amend(changes)
        for answer, change in zip(answers, changes, strict=True):
            if answer.answer is Answer.DONE:
                done += 1
                if answer.message is not None:
                    self._observer.count(change.action, answer.message.route)
        return done


def _in_state(where: Filter, state: State, done: str) -> Filter:
    if where.state not in (None, state):
        raise InvalidMessage("filter.state", f"only {state} messages can be {done}")
    return msgspec.structs.replace(where, state=state)


def definite(message_id: str, amended: Amended) -> Message:
    """Return the changed message, or raise the error that explains why it did not change."""
    message = amended.message
    if message is None or amended.answer is Answer.UNKNOWN:
        raise UnknownMessage(message_id)
    if amended.answer is Answer.RELEASED:
        raise AlreadyReleased(message_id, message.state, cancel_pending=message.cancel_pending)
    if amended.answer is Answer.CONFLICT:
        raise VersionConflict(message_id, message.version)
    return message
