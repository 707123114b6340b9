"""What the store did, step by step in the order it did it, held against the promises.

Each step is also done by the reference in memory where the store is another one: both must answer
the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from penstock.model.message import Message, NewMessage
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
from penstock.model.query import Cursor, Filter, Page
from penstock.model.route import KeyLimit
from penstock.model.size import ANY_SIZE
from penstock.model.state import State, after_lease, may_become
from penstock.stores.memory.messages import MessageBook
from tests.simulation.journal import Journal

EARLY = "1.2 never early"
FENCED = "1.4 a lease is fenced"
DEFINITE = "1.5 a definite answer"
STATES = "1 states"
TWIN = "the store and its model agree"
BLIND = "1 workers do not poll blindly"
MAX_IN_VAIN = 150
PAUSED = "1 a paused route releases nothing"
TURNS = "1 a key's messages go out in turn"


@dataclass(slots=True)
class Known:
    """One message as the steps so far leave it."""

    state: State
    due: int
    route: str
    key: str
    expires: int | None = None
    token: int = 0
    attempt: int = 0
    floor: int = 0
    """The attempt at which it was redriven."""
    decided: bool = False
    """A policy held it back at some time."""
    cancel_asked: bool = False
    cancelled_by: bool = False
    blocked_by: str = ""
    settled: int | None = None
    error: str = ""
    history: list[tuple[int, State]] = field(default_factory=list)
    moves: list[tuple[int, tuple[str, str], bool]] = field(default_factory=list)
    """When it was given another route or key, which it had before, and whether it was sent there
    and was to be sent again."""

    @property
    def begun(self) -> bool:
        """On an ordered route it comes before everything of its key."""
        return self.attempt > self.floor or self.decided

    def state_at(self, elapsed: int) -> State:
        """By the world's time."""
        states = [state for since, state in self.history if since <= elapsed]
        return states[-1] if states else State.SCHEDULED

    def line_at(self, elapsed: int) -> tuple[str, str]:
        """Its route and key then."""
        return next((line for at, line, _ in self.moves if at > elapsed), (self.route, self.key))

    def came_as_retry(self, elapsed: int) -> bool:
        """To the route and key that it had then."""
        moves = [was_retry for at, _, was_retry in self.moves if at <= elapsed]
        return bool(moves) and moves[-1]

    def move(self, elapsed: int, route: str, key: str) -> None:
        """Policies said nothing yet of what it is now."""
        if (route, key) != (self.route, self.key):
            self.moves.append((elapsed, (self.route, self.key), self.attempt > self.floor))
            self.route, self.key, self.decided = route, key, False


def check_turns(journal: Journal, known: dict[str, Known], claim: Claim, per_key: KeyLimit) -> None:
    """What a route promises of every key, looked at before the claim is noted."""
    taken = {message.id for message in claim.messages}
    for message in claim.messages:
        same = {
            name: other
            for name, other in known.items()
            if other.route == message.route and other.key == message.key
        }
        busy = sum(o.state is State.LEASED or name in taken for name, o in same.items())
        if busy > per_key.in_flight:
            told = f"{busy} of {message.key} in flight, {per_key.in_flight} are allowed"
            journal.fail(TURNS, message.id, told)
        if per_key.ordered and message.id in same:
            line = {n: other for n, other in same.items() if other.state is State.SCHEDULED}
            begun = {n: other for n, other in line.items() if other.begun}
            first = min((o.due, n) for n, o in (begun or line).items())
            if first[1] != message.id:
                journal.fail(TURNS, message.id, f"went before {first[1]}")


class Ledger:
    """Told of every step that took effect. `who` is the process that asked for it."""

    def __init__(self, journal: Journal, book: MessageBook, *, beside: bool) -> None:
        self._journal = journal
        self._clock = journal.clock
        self.book = book
        self.beside = beside
        """The store is another one: the book does every step too, and must answer the same."""
        self.known: dict[str, Known] = {}
        self.leases: dict[int, int] = {}
        """Token → until."""
        self.paused: set[str] = set()
        self._vain: dict[tuple[str, str], tuple[int, int]] = {}
        """(Process, route) → the second, and how many claims of it gave nothing."""
        self.forgotten: dict[str, Known] = {}

    # --- steps ---

    def put(self, who: str, messages: Sequence[NewMessage], now: int, got: list[Receipt]) -> None:
        for message, receipt in zip(messages, got, strict=True):
            self._note(who, "put", message.id, f"{receipt.state} due {self._at(receipt.due)}")
            known = self.known.get(message.id)
            if (known is not None) != receipt.duplicate:
                self._journal.fail(STATES, message.id, f"duplicate is {receipt.duplicate}")
            if known is None:
                known = self.known[message.id] = Known(
                    receipt.state, receipt.due, message.route, message.key, message.expires
                )
                known.blocked_by = message.blocked or ""
                if message.blocked is not None:
                    known.settled = now
            elif known.state is State.SCHEDULED:
                if receipt.due != known.due or message.on_conflict.value == "replace":
                    known.expires = message.expires
                    known.move(self._clock.elapsed(), message.route, message.key)
                known.due = receipt.due
        if self.beside:
            self._same("put", self.book.put(messages, now), got)

    def claim(
        self,
        who: str,
        route: str,
        limit: int,
        lease: int,
        now: int,
        got: Claim,
        per_key: KeyLimit | None = None,
        max_bytes: int = ANY_SIZE,
    ) -> None:
        if got.messages:
            self.leases[got.token] = now + lease
            if route in self.paused:
                self._journal.fail(PAUSED, got.messages[0].id, f"claimed from {route}")
            if len(got.messages) > limit:
                self._journal.fail("1.6 bounded claims", route, f"{len(got.messages)} > {limit}")
        else:
            self._asked_in_vain(who, route)
        if per_key is not None:
            check_turns(self._journal, self.known, got, per_key)
        for message in got.messages:
            self._claimed(who, message, got.token)
        if self.beside:
            token = got.token or None
            if per_key is None:
                twin = self.book.claim(route, limit, lease, now, max_bytes, token=token)
            else:
                twin = self.book.claim_keyed(
                    route, limit, lease, now, per_key, max_bytes, token=token
                )
            self._same_claim(twin, got)

    def _asked_in_vain(self, who: str, route: str) -> None:
        second = self._clock.elapsed() // 1000
        before, number = self._vain.get((who, route), (second, 0))
        number = number + 1 if before == second else 1
        self._vain[who, route] = second, number
        if number == MAX_IN_VAIN:
            self._journal.fail(
                BLIND, route, f"{who} claimed {number} times in a second for nothing"
            )

    def _claimed(self, who: str, message: Message, token: int) -> None:
        at = self._clock.now()
        facts = f"attempt {message.attempt} token {token} due {self._at(message.due)}"
        self._note(who, "claim", message.id, facts)
        known = self.known.get(message.id)
        if known is None:
            self._journal.fail(STATES, message.id, "claimed, but nobody put it")
            return
        if message.due > at:
            self._journal.fail(EARLY, message.id, f"claimed {message.due - at} ms before its due")
        if message.attempt != known.attempt + 1:
            self._journal.fail(
                "1.3 attempts grow", message.id, f"{known.attempt} → {message.attempt}"
            )
        self._become(message.id, known, State.LEASED)
        known.token, known.attempt, known.due = token, message.attempt, message.due

    def settle(
        self, who: str, settlements: Sequence[Settlement], now: int, got: list[State | None]
    ) -> None:
        for settlement, state in zip(settlements, got, strict=True):
            self._settled(who, settlement, state, now)
        if self.beside:
            self._same("settle", self.book.settle(settlements, now), got)

    def _settled(self, who: str, settlement: Settlement, state: State | None, now: int) -> None:
        message_id = settlement.message.id
        facts = f"{settlement.event} → {state or 'stale'} token {settlement.token}"
        self._note(
            who,
            "settle",
            message_id,
            facts + (f" ({settlement.error})" if settlement.error else ""),
        )
        known = self.known.get(message_id)
        if known is None:
            if state is not None:
                self._journal.fail(FENCED, message_id, "settled what is not there")
            return
        current = known.state is State.LEASED and known.token == settlement.token
        if current != (state is not None):
            told = "a stale token changed it" if state is not None else "its own token was refused"
            self._journal.fail(FENCED, message_id, told)
        if state is None or not current:
            return
        if state is not after_lease(settlement.state, cancel_asked=known.cancel_asked):
            self._journal.fail(DEFINITE, message_id, f"{settlement.state} became {state}")
        self._become(message_id, known, state)
        if settlement.refund:
            known.attempt -= 1
        if settlement.decided is not None:
            known.decided = True
            if state is State.BLOCKED:
                known.blocked_by = settlement.decided.policy
        if state is State.SCHEDULED and settlement.due is not None:
            known.due = settlement.due
        known.cancelled_by = known.cancelled_by or state is State.CANCELLED
        known.error = settlement.error or known.error
        known.cancel_asked = False
        known.settled = None if state is State.SCHEDULED else now

    def extend(self, who: str, tokens: Sequence[int], until: int) -> None:
        for token in tokens:
            if token in self.leases:
                self.leases[token] = until
        self._note(who, "extend", "", " ".join(map(str, tokens)))
        if self.beside:
            self.book.extend(tokens, until)

    def reap(self, who: str, now: int, limit: int, got: list[Reaped]) -> None:
        at = self._clock.now()
        for reaped in got:
            self._note(who, "reap", reaped.id, f"→ {reaped.state} attempt {reaped.attempt}")
            known = self.known[reaped.id]
            if self.leases.get(known.token, at) > at:
                left = self.leases[known.token] - at
                self._journal.fail(
                    FENCED, reaped.id, f"taken back {left} ms before its lease ended"
                )
            if reaped.state is not after_lease(State.SCHEDULED, cancel_asked=known.cancel_asked):
                self._journal.fail(DEFINITE, reaped.id, f"a lost lease became {reaped.state}")
            self._become(reaped.id, known, reaped.state)
            known.cancelled_by = known.cancelled_by or reaped.state is State.CANCELLED
            known.settled = None if reaped.state is State.SCHEDULED else now
            known.cancel_asked = False
        if self.beside:
            mine = sorted(self.book.reap(now, limit), key=lambda r: r.id)
            self._same("reap", mine, sorted(got, key=lambda r: r.id))

    def amend(
        self, who: str, amendments: Sequence[Amendment], now: int, got: list[Amended]
    ) -> None:
        for amendment, amended in zip(amendments, got, strict=True):
            self._note(who, amendment.action.value, amendment.id, amended.answer.value)
            known = self.known.get(amendment.id)
            if (known is None) != (amended.answer is Answer.UNKNOWN):
                self._journal.fail(DEFINITE, amendment.id, f"answered {amended.answer}")
            if known is not None:
                self._amended(known, amendment, amended, now)
        if self.beside:
            for mine, theirs in zip(self.book.amend(amendments, now), got, strict=True):
                self._same("amend", mine.answer, theirs.answer)
                self._same_message(mine.message, theirs.message)

    def _amended(self, known: Known, amendment: Amendment, amended: Amended, now: int) -> None:
        action = amendment.action
        if amended.answer is Answer.RELEASED and action is Action.CANCEL:
            if known.state is State.LEASED:
                known.cancel_asked = True
            elif known.state in (State.SCHEDULED, State.CANCELLED):
                self._journal.fail(
                    DEFINITE, amendment.id, f"{known.state}, but said to be released"
                )
        if amended.answer is not Answer.DONE or amended.message is None:
            return
        if action is Action.CANCEL:
            if known.state is not State.CANCELLED:
                self._become(amendment.id, known, State.CANCELLED)
                known.settled = now
            known.cancelled_by = True
        else:
            if action is Action.REDRIVE:
                self._become(amendment.id, known, State.SCHEDULED)
                known.settled = None
                known.floor = known.attempt
                known.decided = False
            known.due, known.expires = amended.message.due, amended.message.expires

    def search(self, where: Filter, after: Cursor | None, limit: int, got: Page) -> None:
        if self.beside:
            mine = self.book.search(where, after, limit)
            ids = [message.id for message in mine.items], [message.id for message in got.items]
            self._same(f"search {where}", (ids[0], mine.next), (ids[1], got.next))

    def purge(self, now: int, limit: int, got: int) -> None:
        if self.beside:
            self._same("purge", self.book.purge(now, limit), got)
        for message_id in [name for name in self.known if name not in self.book.records]:
            self._note("store", "purged", message_id)
            self.forgotten[message_id] = self.known.pop(message_id)

    def pause(self, who: str, route: str, paused: bool) -> None:
        self._note(who, "pause" if paused else "resume", route)
        (self.paused.add if paused else self.paused.discard)(route)
        if self.beside:
            self.book.pause(route, paused)

    def compare_all(self, ids: Sequence[str], held: Sequence[Message | None]) -> None:
        """At the end: every message, field by field; but for what was forgotten meanwhile."""
        if self.beside:
            for message_id, message in zip(ids, held, strict=True):
                if message_id in self.known:
                    self._same_message(self.book.find(message_id), message)

    # --- helpers ---

    def _become(self, message_id: str, known: Known, state: State) -> None:
        if not may_become(known.state, state):
            self._journal.fail(STATES, message_id, f"{known.state} became {state}")
        known.state = state
        known.history.append((self._clock.elapsed(), state))

    def _note(self, who: str, what: str, about: str, facts: str = "") -> None:
        self._journal.note(who, what, about, facts)

    def _at(self, moment: int) -> str:
        return f"{(moment - self._clock.now() + self._clock.elapsed()) / 1000:.3f} s"

    def _same(self, step: str, mine: object, theirs: object) -> None:
        if mine != theirs:
            self._journal.fail(TWIN, "", f"{step}: the model says {mine}, the store {theirs}")

    def _same_claim(self, mine: Claim, theirs: Claim) -> None:
        self._same("next_due", mine.next_due, theirs.next_due)
        self._same("claim", [m.id for m in mine.messages], [m.id for m in theirs.messages])

    def _same_message(self, mine: Message | None, theirs: Message | None) -> None:
        if theirs is not None:
            theirs = replace(theirs, ref=0)
        if mine != theirs:
            about = "" if mine is None else mine.id
            self._journal.fail(TWIN, about, f"the model holds {mine}, the store {theirs}")
