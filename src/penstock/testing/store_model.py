"""A store in plain Python: what the port means, said without any store.

Not a MessageStore: it takes the result of a claim instead of choosing, because the port leaves
the order of equals open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.model.message import Message, NewMessage, OnConflict
from penstock.model.outcome import Action, Amendment, Answer, Claim, Receipt, Settlement
from penstock.model.state import PURGEABLE, State, after_lease, may_become


@dataclass
class Held:
    """One message as the model holds it."""

    new: NewMessage
    due: int
    payload: bytes
    priority: int
    state: State = State.SCHEDULED
    version: int = 1
    attempt: int = 0
    attempt_floor: int = 0
    token: int | None = None
    settled: int | None = None
    last_error: str | None = None
    cancel_pending: bool = False

    def become(self, state: State) -> None:
        """Only as the one table of states allows."""
        assert may_become(self.state, state), f"{self.state} may not become {state}"
        self.state = state

    def agrees_with(self, message: Message) -> bool:
        return (
            message.id == self.new.id
            and message.route == self.new.route
            and message.key == self.new.key
            and message.payload == (b"" if self.state is State.DELIVERED else self.payload)
            and message.due == self.due
            and message.priority == self.priority
            and message.state is self.state
            and message.version == self.version
            and message.attempt == self.attempt
            and message.attempt_floor == self.attempt_floor
            and message.settled == self.settled
            and message.last_error == self.last_error
            and message.cancel_pending == self.cancel_pending
        )


def _held(new: NewMessage) -> Held:
    return Held(new=new, due=new.due, payload=new.payload, priority=new.priority)


@dataclass
class StoreModel:
    """Every rule of the port in a few lines each."""

    retention: int
    messages: dict[str, Held] = field(default_factory=dict)
    leases: dict[int, int] = field(default_factory=dict)
    """Token → the end of the lease."""
    paused: set[str] = field(default_factory=set)

    def put(self, news: Sequence[NewMessage]) -> list[Receipt]:
        return [self._put_one(new) for new in news]

    def _put_one(self, new: NewMessage) -> Receipt:
        held = self.messages.get(new.id)
        if held is None:
            self.messages[new.id] = held = _held(new)
            held.state = new.state
            return Receipt(new.id, held.state, new.due)
        wins = new.on_conflict is OnConflict.REPLACE or (
            new.on_conflict is OnConflict.EARLIEST and new.due < held.due
        )
        if wins and held.state is State.SCHEDULED:
            held.new, held.due, held.payload, held.priority = (
                new,
                new.due,
                new.payload,
                new.priority,
            )
            held.version += 1
        return Receipt(new.id, held.state, held.due, duplicate=True)

    def claimable(self, route: str, now: int) -> list[Held]:
        """In the order they leave; equals in any order."""
        if route in self.paused:
            return []
        waiting = [
            held
            for held in self.messages.values()
            if held.state is State.SCHEDULED and held.new.route == route and held.due <= now
        ]
        return sorted(waiting, key=lambda held: (-held.priority, held.due))

    def claimed(self, claim: Claim, until: int) -> None:
        """Take over what a store claimed, once it has been found right."""
        for message in claim.messages:
            held = self.messages[message.id]
            held.become(State.LEASED)
            held.token = claim.token
            held.attempt += 1
        if claim.messages:
            self.leases[claim.token] = until

    def settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        return [self._settle_one(settlement, now) for settlement in settlements]

    def _settle_one(self, settlement: Settlement, now: int) -> State | None:
        held = self.messages.get(settlement.message.id)
        if held is None or held.token != settlement.token:
            return None
        state = after_lease(settlement.state, cancel_asked=held.cancel_pending)
        if state is State.SCHEDULED and settlement.due is not None:
            held.due = settlement.due
        if settlement.refund:
            held.attempt -= 1
        if settlement.error is not None:
            held.last_error = settlement.error
        self._end(held, state, now)
        return state

    def reap(self, now: int) -> dict[str, State]:
        """Everything whose lease has ended, and what became of it."""
        ended = {token for token, until in self.leases.items() if until <= now}
        lost = [held for held in self.messages.values() if held.token in ended]
        for held in lost:
            self._end(held, after_lease(State.SCHEDULED, cancel_asked=held.cancel_pending), now)
        self.leases = {t: until for t, until in self.leases.items() if t not in ended}
        return {held.new.id: held.state for held in lost}

    @staticmethod
    def _end(held: Held, state: State, now: int) -> None:
        held.become(state)
        held.token, held.cancel_pending = None, False
        held.settled = None if state is State.SCHEDULED else now

    def extend(self, tokens: Sequence[int], until: int) -> None:
        current = {held.token for held in self.messages.values()}
        for token in tokens:
            if token in current and token in self.leases:
                self.leases[token] = until

    def amend(self, amendment: Amendment, now: int) -> Answer:
        held = self.messages.get(amendment.id)
        if held is None:
            return Answer.UNKNOWN
        action = amendment.action
        if action in (Action.DELETE, Action.ERASE):
            return self._remove(held, amendment)
        if action is Action.CANCEL and held.state is State.CANCELLED:
            return Answer.DONE
        if held.state is not (State.DEAD if action is Action.REDRIVE else State.SCHEDULED):
            if action is Action.CANCEL and held.state is State.LEASED:
                held.cancel_pending = True
            return Answer.RELEASED
        if amendment.version is not None and amendment.version != held.version:
            return Answer.CONFLICT
        self._change(held, amendment, now)
        held.version += 1
        return Answer.DONE

    def _remove(self, held: Held, amendment: Amendment) -> Answer:
        """The dead can be deleted; everything but what is leased can be erased."""
        erases = amendment.action is Action.ERASE
        if held.state is State.LEASED or not (erases or held.state is State.DEAD):
            held.cancel_pending |= erases and held.state is State.LEASED
            return Answer.RELEASED
        if amendment.version is not None and amendment.version != held.version:
            return Answer.CONFLICT
        del self.messages[held.new.id]
        return Answer.DONE

    @staticmethod
    def _change(held: Held, amendment: Amendment, now: int) -> None:
        if amendment.action is Action.CANCEL:
            held.become(State.CANCELLED)
            held.settled = now
        elif amendment.action is Action.RELEASE:
            held.due = min(held.due, now)
        elif amendment.action is Action.RESCHEDULE:
            held.due = held.due if amendment.due is None else amendment.due
            held.payload = held.payload if amendment.payload is None else amendment.payload
            held.priority = held.priority if amendment.priority is None else amendment.priority
        else:
            held.become(State.SCHEDULED)
            held.settled, held.attempt_floor = None, held.attempt
            held.due = now if amendment.due is None else amendment.due

    def purge(self, now: int) -> None:
        self.messages = {
            message_id: held
            for message_id, held in self.messages.items()
            if held.state not in PURGEABLE
            or held.settled is None
            or now - held.settled <= self.retention
        }
