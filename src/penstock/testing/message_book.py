"""The whole store port as plain, synchronous Python: slow, obvious, and what a store must answer.

`MemoryStore` is this behind the port; a simulation runs it beside a real store, step by step, and
compares the answers. Tokens may be given, so that both hold the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from penstock.model.amending import Change, judge
from penstock.model.message import NewMessage, OnConflict
from penstock.model.outcome import (
    Action,
    Amended,
    Amendment,
    Answer,
    Claim,
    Reaped,
    Receipt,
    Settlement,
)
from penstock.model.query import Cursor, Filter, Page, RouteFigures, StoreFigures
from penstock.model.route import KeyLimit
from penstock.model.size import ANY_SIZE, PAGE_BYTES, fitting, size_of
from penstock.model.state import PURGEABLE, State, after_lease
from penstock.model.times import format_moment
from penstock.testing.message_rows import (
    Row,
    count_in,
    inherited,
    matches,
    message_of,
    rescheduled,
)

WakeUp = Callable[[str, int], None]


@dataclass(slots=True)
class Lease:
    until: int
    ids: list[str]


class MessageBook:
    """Messages, leases and paused routes, with the rules of `penstock.ports.store`."""

    def __init__(self, *, retention: int, retention_count: int, wake: WakeUp | None = None) -> None:
        self.rows: dict[str, Row] = {}
        self.leases: dict[int, Lease] = {}
        self.paused: dict[str, None] = {}
        self._waiting: dict[str, dict[str, Row]] = {}
        """Route → what is scheduled on it."""
        self._next: dict[str, int | None] = {}
        """Route → its earliest due, where nothing changed since it was looked for."""
        self._retired: list[tuple[int, str]] = []
        self._retention = retention
        self._retention_count = retention_count
        self._wake = wake if wake is not None else lambda _route, _due: None
        self._last_token = 0

    # --- put ---

    def put(self, news: Sequence[NewMessage], now: int) -> list[Receipt]:
        return [self._put_one(new, now) for new in news]

    def _put_one(self, new: NewMessage, now: int) -> Receipt:
        row = self.rows.get(new.id)
        if row is None:
            return self._keep(new, now)
        held = row.message
        wins = new.on_conflict is OnConflict.REPLACE or (
            new.on_conflict is OnConflict.EARLIEST and new.due < held.due
        )
        if not wins or held.state is not State.SCHEDULED:
            return Receipt(new.id, held.state, held.due, duplicate=True)
        self._unlist(row)
        row.message = replace(
            message_of(new, now), **inherited(held, new), version=held.version + 1
        )
        row.note(now, "replaced")
        self._list(row)
        return Receipt(new.id, State.SCHEDULED, new.due, duplicate=True)

    def _keep(self, new: NewMessage, now: int) -> Receipt:
        self.rows[new.id] = row = Row(message_of(new, now))
        row.note(now, "accepted")
        if new.ending is None:
            self._list(row)
        else:
            state, reason = new.ending
            self._settle_as(row, state, now, error=reason)
        return Receipt(new.id, row.message.state, new.due)

    # --- leases ---

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
        due = [row for row in self._waiting[route].values() if row.message.due <= now]
        due.sort(key=lambda row: (-row.message.priority, row.message.due, row.message.id))
        chosen = _within(due[:limit], max_bytes)
        taken = self._take(chosen, lease, now, token)
        if len(chosen) < min(len(due), limit):
            return Claim(taken.token, taken.messages, None, stopped_at_bytes=True)
        next_due = self._next_due(route) if len(due) < limit else None
        return Claim(taken.token, taken.messages, next_due)

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
            (heads[0].message.due, key, heads)
            for key, heads in self._heads(route, per_key).items()
            if heads[0].message.due <= now
        )[:limit]
        chosen: list[Row] = []
        for _, _, heads in turns:
            chosen += [row for row in heads if row.message.due <= now][: limit - len(chosen)]
        due = len(chosen)
        chosen = _within(chosen, max_bytes)
        taken = self._take(chosen, lease, now, token) if chosen else Claim(0)
        if len(chosen) < due:
            return Claim(taken.token, taken.messages, None, stopped_at_bytes=True)
        if len(chosen) < limit:
            left = [heads[0].message.due for heads in self._heads(route, per_key).values()]
            return Claim(taken.token, taken.messages, min(left, default=None))
        return taken

    def _heads(self, route: str, per_key: KeyLimit) -> dict[str, list[Row]]:
        """Key → what of it may go next, whether due or not; a busy key is not there."""
        busy: dict[str, int] = {}
        for lease in self.leases.values():
            for row in map(self.rows.__getitem__, lease.ids):
                if row.message.route == route and row.message.state is State.LEASED:
                    busy[row.message.key] = busy.get(row.message.key, 0) + 1
        lines: dict[str, list[Row]] = {}
        for row in self._waiting.get(route, {}).values():
            lines.setdefault(row.message.key, []).append(row)
        heads = {}
        for key, line in lines.items():
            room = per_key.in_flight - busy.get(key, 0)
            if room > 0:
                line.sort(key=lambda row: (row.message.due, row.message.id))
                begun = [row for row in line if row.begun] if per_key.ordered else []
                heads[key] = begun[:1] or line[:room]
        return heads

    def _take(self, rows: Sequence[Row], lease: int, now: int, token: int | None) -> Claim:
        if token is None:
            self._last_token += 1
            token = self._last_token
        for row in rows:
            self._unlist(row)
            message = row.message
            row.message = replace(
                message, state=State.LEASED, attempt=message.attempt + 1, claimed=now
            )
            row.token = token
            row.note(now, "released", attempt=message.attempt + 1)
        self.leases[token] = Lease(now + lease, [row.message.id for row in rows])
        messages = [row.message for row in rows]
        messages.sort(key=lambda m: (-m.priority, m.due, m.id))
        return Claim(token, tuple(messages))

    def settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        return [self._settle_one(settlement, now) for settlement in settlements]

    def _settle_one(self, settlement: Settlement, now: int) -> State | None:
        row = self.rows.get(settlement.message.id)
        if row is None or row.token != settlement.token:
            return None
        asked = row.message.cancel_pending
        state = after_lease(settlement.state, cancel_asked=asked)
        if settlement.refund:
            self._refund(row, noted=asked)
        elif settlement.allowed is not None and (not asked or state is State.DELIVERED):
            release = row.last_release
            row.events[release] = replace(row.events[release], detail=settlement.allowed)
        if settlement.event != settlement.state:
            attempt = None if settlement.refund else row.message.attempt
            row.note(now, settlement.event, settlement.detail, attempt)
        if settlement.kept is not None:
            row.message = replace(row.message, decided=settlement.kept)
        self._end(row, state, now, due=settlement.due, error=settlement.error)
        return state

    def _refund(self, row: Row, *, noted: bool) -> None:
        """No send was begun; once a cancel was asked, the timeline keeps that it was released."""
        row.message = replace(row.message, attempt=row.message.attempt - 1, claimed=None)
        if not noted:
            del row.events[row.last_release]

    def extend(self, tokens: Sequence[int], until: int) -> None:
        for token in tokens:
            if token in self.leases:
                self.leases[token].until = until

    def reap(self, now: int, limit: int) -> list[Reaped]:
        reaped: list[Reaped] = []
        ended = sorted((le.until, token) for token, le in self.leases.items() if le.until <= now)
        for _, token in ended:
            for message_id in tuple(self.leases[token].ids):
                if len(reaped) >= limit:
                    return reaped
                row = self.rows[message_id]
                row.note(now, "lease_lost", attempt=row.message.attempt)
                state = after_lease(State.SCHEDULED, cancel_asked=row.message.cancel_pending)
                self._end(row, state, now)
                message = row.message
                reaped.append(Reaped(message.id, message.route, state, message.attempt))
        return reaped

    def _end(
        self,
        row: Row,
        state: State,
        now: int,
        *,
        due: int | None = None,
        error: str | None = None,
    ) -> None:
        """The lease is over: wait again, or be settled."""
        token, row.token = row.token, None
        if token is not None:
            lease = self.leases[token]
            lease.ids.remove(row.message.id)
            if not lease.ids:
                del self.leases[token]
        message = replace(row.message, cancel_pending=False)
        if state is State.SCHEDULED:
            row.message = replace(
                message,
                state=state,
                due=message.due if due is None else due,
                claimed=None,
                last_error=message.last_error if error is None else error,
            )
            self._list(row)
        else:
            if state is State.CANCELLED:
                message = replace(message, claimed=None)
            row.message = message
            self._settle_as(row, state, now, error=error)

    def _settle_as(self, row: Row, state: State, now: int, *, error: str | None = None) -> None:
        message = row.message
        error = message.last_error if error is None else error
        row.message = message = replace(message, state=state, settled=now, last_error=error)
        attempt = message.attempt if message.claimed is not None else None
        row.note(now, state.value, None if state is State.DELIVERED else error, attempt)
        if state is State.DELIVERED:
            row.message = replace(message, payload=b"", headers=None)
        if state in PURGEABLE:
            self._retired.append((now, message.id))

    # --- amend ---

    def amend(self, amendments: Sequence[Amendment], now: int) -> list[Amended]:
        return [self._amend_one(amendment, now) for amendment in amendments]

    def _amend_one(self, amendment: Amendment, now: int) -> Amended:
        row = self.rows.get(amendment.id)
        if row is None:
            return Amended(Answer.UNKNOWN)
        held = row.message
        answer, change = judge(amendment, held)
        if change is Change.MARK:
            row.message = replace(held, cancel_pending=True)
            row.note(now, "cancel_asked")
        elif change is Change.REMOVE:
            self._unlist(row)
            del self.rows[held.id]
        elif change is Change.MAKE:
            row.message = replace(held, version=held.version + 1)
            self._unlist(row)
            self._change(row, amendment, now)
        return Amended(answer, row.message)

    def _change(self, row: Row, amendment: Amendment, now: int) -> None:
        held = row.message
        match amendment.action:
            case Action.CANCEL:
                row.message = replace(held, claimed=None)
                self._settle_as(row, State.CANCELLED, now)
                return
            case Action.RELEASE:
                row.message = replace(held, due=min(held.due, now))
                row.note(now, "rescheduled", "due now")
            case Action.RESCHEDULE:
                row.message = rescheduled(held, amendment)
                moved = row.message.due != held.due
                row.note(
                    now, "rescheduled", f"due {format_moment(row.message.due)}" if moved else None
                )
            case Action.REDRIVE:
                row.message = replace(
                    held,
                    state=State.SCHEDULED,
                    due=now if amendment.due is None else amendment.due,
                    attempt_floor=held.attempt,
                    claimed=None,
                    settled=None,
                    decided=None,
                )
                row.note(now, "redriven")
        self._list(row)

    # --- look ---

    def search(self, where: Filter, after: Cursor | None, limit: int) -> Page:
        found = sorted(
            (row.message for row in self.rows.values() if matches(row.message, where)),
            key=lambda m: (m.due, m.id),
        )
        if after is not None:
            found = [m for m in found if (m.due, m.id) > (after.due, after.id)]
        page = found[:limit]
        page = page[: fitting(map(size_of, page), PAGE_BYTES)]
        more = len(found) > len(page)
        return Page(page, Cursor(page[-1].due, page[-1].id) if more and page else None)

    def figures(self, now: int) -> StoreFigures:
        states = dict.fromkeys(State, 0)
        routes: dict[str, RouteFigures] = {}
        for message in (row.message for row in self.rows.values()):
            states[message.state] += 1
            if message.state in (State.SCHEDULED, State.LEASED, State.DEAD):
                count_in(routes.setdefault(message.route, RouteFigures()), message, now)
        return StoreFigures(routes=routes, states=states)

    def purge(self, now: int, limit: int) -> int:
        purged = 0
        while self._retired and purged < limit:
            at, message_id = self._retired[0]
            if now - at <= self._retention and len(self._retired) <= self._retention_count:
                break
            del self._retired[0]
            row = self.rows.get(message_id)
            if row is not None and row.message.settled == at:  # the id may be another's by now
                del self.rows[message_id]
            purged += 1
        return purged

    def pause(self, route: str, paused: bool) -> None:
        if paused:
            self.paused[route] = None
            return
        self.paused.pop(route, None)
        if (due := self._next_due(route)) is not None:
            self._wake(route, due)

    # --- what waits ---

    def _list(self, row: Row) -> None:
        message = row.message
        self._waiting.setdefault(message.route, {})[message.id] = row
        self._next.pop(message.route, None)
        self._wake(message.route, message.due)

    def _unlist(self, row: Row) -> None:
        message = row.message
        self._waiting.get(message.route, {}).pop(message.id, None)
        self._next.pop(message.route, None)

    def _next_due(self, route: str) -> int | None:
        if route not in self._next:
            rows = self._waiting.get(route, {}).values()
            self._next[route] = min((row.message.due for row in rows), default=None)
        return self._next[route]


def _within(rows: list[Row], max_bytes: int) -> list[Row]:
    """The first of them, of at most so many bytes together; one in any case."""
    return rows[: fitting((size_of(row.message) for row in rows), max_bytes)]
