"""Messages, leases and paused routes in dicts: loads a record, takes its step, writes the result.

Synchronous, plain and slow: the rules are those of `penstock.model.lifecycle`, and this file is a
store's bookkeeping at its simplest. Other stores are compared with it; tests pass the tokens, so
that both stores use the same ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec.structs import replace

from penstock.model import lifecycle
from penstock.model.forecast import Forecast
from penstock.model.lifecycle import Record, Step, has_begun
from penstock.model.message import Event, Message, NewMessage
from penstock.model.outcome import Amended, Amendment, Claim, Reaped, Receipt, Settlement
from penstock.model.query import Cursor, Filter, Page, RouteFigures, StoreFigures
from penstock.model.route import KeyLimit
from penstock.model.size import ANY_SIZE, PAGE_BYTES, fitting, size_of
from penstock.model.state import PURGEABLE, State
from penstock.model.timeline import lines_of
from penstock.ports.fleet import DeadLetter

_Answer = TypeVar("_Answer")

WakeUp = Callable[[str, int], None]
MAX_EVENTS = 200
"""Most lines of one message's timeline; the oldest are dropped first."""


@dataclass(slots=True)
class Lease:
    """One claim: the unsettled messages under its token."""

    until: int
    ids: dict[str, None] = field(default_factory=dict)


class MessageBook:
    """The message part of the store port without the waiting."""

    def __init__(self, *, retention: int, retention_count: int, wake: WakeUp | None = None) -> None:
        self.records: dict[str, Record] = {}
        self.leases: dict[int, Lease] = {}
        self.paused: dict[str, None] = {}
        self._scheduled: dict[str, dict[str, Message]] = {}
        """Route → its scheduled messages by id."""
        self._next: dict[str, int | None] = {}
        """Route → its earliest due, if known since the last change."""
        self._retired: deque[tuple[int, str]] = deque()
        """(settled, id) of messages whose retention time is running."""
        self._retention = retention
        self._retention_count = retention_count
        self._wake = wake if wake is not None else lambda _route, _due: None
        self._last_token = 0

    # --- steps ---

    def put(self, news: Sequence[NewMessage], now: int) -> list[Receipt]:
        return [
            self._write(new.id, lifecycle.put(self.records.get(new.id), new, now)) for new in news
        ]

    def claim(
        self,
        route: str,
        limit: int,
        lease: int,
        now: int,
        max_bytes: int = ANY_SIZE,
        *,
        token: int | None = None,
    ) -> Claim:
        if limit <= 0 or route in self.paused:
            return Claim(0)
        head = self._next_due(route)
        if head is None or head > now:
            return Claim(0, (), head)
        due = self.due(route, now)
        chosen = _within(due[:limit], max_bytes)
        taken = self.lease(chosen, now + lease, now, token)
        if len(chosen) < min(len(due), limit):
            return replace(taken, stopped_at_bytes=True)
        return replace(taken, next_due=self._next_due(route)) if len(due) < limit else taken

    def due(self, route: str, now: int) -> list[Message]:
        """The messages that may be claimed, in the order in which they are sent."""
        found = [m for m in self._scheduled.get(route, {}).values() if m.due <= now]
        return sorted(found, key=_claim_order)

    def claim_keyed(
        self,
        route: str,
        limit: int,
        lease: int,
        now: int,
        per_key: KeyLimit,
        max_bytes: int = ANY_SIZE,
        *,
        token: int | None = None,
    ) -> Claim:
        if limit <= 0 or route in self.paused:
            return Claim(0)
        turns = sorted(
            (heads[0].due, key, heads)
            for key, heads in self._heads(route, per_key).items()
            if heads[0].due <= now
        )[:limit]
        due: list[Message] = []
        for _, _, heads in turns:
            due += [message for message in heads if message.due <= now][: limit - len(due)]
        chosen = _within(due, max_bytes)
        taken = self.lease(chosen, now + lease, now, token) if chosen else Claim(0)
        if len(chosen) < len(due):
            return replace(taken, stopped_at_bytes=True)
        if len(chosen) < limit:
            left = [heads[0].due for heads in self._heads(route, per_key).values()]
            return replace(taken, next_due=min(left, default=None))
        return taken

    def _heads(self, route: str, per_key: KeyLimit) -> dict[str, list[Message]]:
        """Key → its messages that may be sent next, due or not; a busy key is left out."""
        busy: dict[str, int] = {}
        for lease in self.leases.values():
            for message in (self.records[name].message for name in lease.ids):
                if message.route == route:
                    busy[message.key] = busy.get(message.key, 0) + 1
        lines: dict[str, list[Message]] = {}
        for message in self._scheduled.get(route, {}).values():
            lines.setdefault(message.key, []).append(message)
        heads = {}
        for key, line in lines.items():
            free = per_key.in_flight - busy.get(key, 0)
            if free > 0:
                line.sort(key=lambda message: (message.due, message.id))
                begun = [m for m in line if has_begun(m)] if per_key.ordered else []
                heads[key] = begun[:1] or line[:free]
        return heads

    def lease(
        self, messages: Iterable[Message], until: int, now: int, token: int | None = None
    ) -> Claim:
        """Lease exactly these messages, under one token."""
        if token is None:
            self._last_token += 1
            token = self._last_token
        taken = (
            self._write(m.id, lifecycle.lease(self.records[m.id], token, now)) for m in messages
        )
        leased = [message for message in taken if message is not None]
        self.leases[token] = Lease(until, {message.id: None for message in leased})
        return Claim(token, tuple(sorted(leased, key=_claim_order)))

    def settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        return [self._settle(settlement, now) for settlement in settlements]

    def _settle(self, settlement: Settlement, now: int) -> State | None:
        record = self.records.get(settlement.message.id)
        if record is None:
            return None
        return self._write(settlement.message.id, lifecycle.settle(record, settlement, now))

    def extend(self, tokens: Sequence[int], until: int) -> None:
        for token in tokens:
            if token in self.leases:
                self.leases[token].until = until

    def reap(self, now: int, limit: int) -> list[Reaped]:
        ended = sorted((le.until, token) for token, le in self.leases.items() if le.until <= now)
        lost = [(token, name) for _, token in ended for name in self.leases[token].ids][:limit]
        steps = (
            self._write(name, lifecycle.lose(self.records[name], token, now))
            for token, name in lost
        )
        return [reaped for reaped in steps if reaped is not None]

    def amend(self, amendments: Sequence[Amendment], now: int) -> list[Amended]:
        return [
            self._write(a.id, lifecycle.amend(self.records.get(a.id), a, now)) for a in amendments
        ]

    def _write(self, message_id: str, step: Step[_Answer]) -> _Answer:
        """Store the step's record, and update the indexes."""
        before, after = self.records.get(message_id), step.record
        if after is before:
            return step.answer
        if before is not None:
            self._unlist(before, after)
        if after is None:
            del self.records[message_id]
            return step.answer
        noted = (*after.noted, *step.events)[-MAX_EVENTS:]
        self.records[message_id] = replace(after, noted=noted)
        message = after.message
        if message.state is State.SCHEDULED:
            self._scheduled.setdefault(message.route, {})[message_id] = message
            self._next.pop(message.route, None)
            self._wake(message.route, message.due)
        elif message.state in PURGEABLE:
            self._retired.append((message.settled or 0, message_id))
        return step.answer

    def _unlist(self, before: Record, after: Record | None) -> None:
        message = before.message
        if message.state is State.SCHEDULED:
            self._scheduled[message.route].pop(message.id)
            self._next.pop(message.route, None)
        if before.token is not None and (after is None or after.token is None):
            lease = self.leases[before.token]
            del lease.ids[message.id]
            if not lease.ids:
                del self.leases[before.token]

    # --- reads ---

    def find(self, message_id: str) -> Message | None:
        record = self.records.get(message_id)
        return None if record is None else record.message

    def get(self, message_id: str) -> tuple[Message, list[Event]] | None:
        record = self.records.get(message_id)
        if record is None:
            return None
        return record.message, lines_of(record.message, record.noted)

    def search(self, where: Filter, after: Cursor | None, limit: int) -> Page:
        found = sorted(
            (m for m in self._messages() if where.matches(m)), key=lambda m: (m.due, m.id)
        )
        if after is not None:
            found = [m for m in found if (m.due, m.id) > (after.due, after.id)]
        page = _within(found[:limit], PAGE_BYTES)
        more = len(found) > len(page)
        return Page(page, Cursor(page[-1].due, page[-1].id) if more and page else None)

    def figures(self, now: int) -> StoreFigures:
        states = dict.fromkeys(State, 0)
        routes: dict[str, RouteFigures] = {}
        for message in self._messages():
            states[message.state] += 1
            if message.state in (State.SCHEDULED, State.LEASED, State.DEAD):
                _count(routes.setdefault(message.route, RouteFigures()), message, now)
        return StoreFigures(routes=routes, states=states)

    def forecast(self, now: int) -> Forecast:
        found = Forecast(now=now)
        for route, messages in self._scheduled.items():
            for message in messages.values():
                found.add(route, message.due, 1)
        return found

    def dead_letters(self, route: str | None, limit: int) -> list[DeadLetter]:
        """The latest of every route in turn, so that no route crowds out another."""
        lines: dict[str, list[Message]] = {}
        where = Filter(state=State.DEAD, route=route)
        for message in filter(where.matches, self._messages()):
            lines.setdefault(message.route, []).append(message)
        ranked = [
            (place, message)
            for line in lines.values()
            for place, message in enumerate(sorted(line, key=lambda m: -m.due))
        ]
        ranked.sort(key=lambda one: one[0])
        return [
            DeadLetter(m.route, m.last_error or "", m.settled or m.due, m.id)
            for _, m in ranked[:limit]
        ]

    def _messages(self) -> Iterable[Message]:
        return (record.message for record in self.records.values())

    # --- upkeep ---

    def purge(self, now: int, limit: int) -> int:
        purged = 0
        while self._retired and purged < limit:
            at, message_id = self._retired[0]
            if now - at <= self._retention and len(self._retired) <= self._retention_count:
                break
            self._retired.popleft()
            message = self.find(message_id)
            if message is not None and message.settled == at:  # the id may have been put again
                del self.records[message_id]
            purged += 1
        return purged

    def pause(self, route: str, paused: bool) -> None:
        if paused:
            self.paused[route] = None
            return
        self.paused.pop(route, None)
        if (due := self._next_due(route)) is not None:
            self._wake(route, due)

    def _next_due(self, route: str) -> int | None:
        if route not in self._next:
            messages = self._scheduled.get(route, {}).values()
            self._next[route] = min((message.due for message in messages), default=None)
        return self._next[route]


def _claim_order(message: Message) -> tuple[int, int, str]:
    return -message.priority, message.due, message.id


def _within(messages: list[Message], max_bytes: int) -> list[Message]:
    """The first messages that together fit into `max_bytes`; at least one."""
    return messages[: fitting(map(size_of, messages), max_bytes)]


def _count(figures: RouteFigures, message: Message, now: int) -> None:
    if message.state is State.LEASED:
        figures.leased += 1
    elif message.state is State.DEAD:
        figures.dead += 1
    else:
        figures.scheduled += 1
        figures.overdue += message.due <= now
        if figures.next_due is None or message.due < figures.next_due:
            figures.next_due = message.due
