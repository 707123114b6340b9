"""What an amendment does to a message in the state it is in: one rule for every store."""

from __future__ import annotations

from enum import Enum, auto

from penstock.model.message import Message, NewMessage
from penstock.model.outcome import Action, Amendment, Answer
from penstock.model.state import DELETABLE, ERASABLE, State
from penstock.model.verdict import Decided

_WAITING = frozenset({State.SCHEDULED})
ALLOWED: dict[Action, frozenset[State]] = {
    Action.CANCEL: _WAITING,
    Action.RESCHEDULE: _WAITING,
    Action.RELEASE: _WAITING,
    Action.REDRIVE: frozenset({State.DEAD}),
    Action.DELETE: DELETABLE,
    Action.ERASE: ERASABLE,
}
"""The states in which each can be done."""
REMOVING = frozenset({Action.DELETE, Action.ERASE})
"""After these there is no message any more."""
_STOPPING = frozenset({Action.CANCEL, Action.ERASE})


class Change(Enum):
    """What a store has to write."""

    MAKE = auto()
    """The change that was asked for."""
    MARK = auto()
    """That a cancel is pending: the message does not go back to wait when its lease ends."""
    REMOVE = auto()
    """Nothing of the message is kept."""


def refusal_kept(held: Message, new: NewMessage) -> Decided | None:
    """What a message that takes another's place keeps of what policies said of that one.

    Nothing on another route or of another key: it was said of those, and an ordered route would
    take the newcomer there for one that it held back before, beside the one that it really did.
    A redriven message begins anew, so it keeps nothing either.
    """
    return held.decided if (new.route, new.key) == (held.route, held.key) else None


def judge(amendment: Amendment, held: Message) -> tuple[Answer, Change | None]:
    """The answer, and what is to be written (None: nothing).

    Already so → not in a state that allows it → another version → done.
    """
    action = amendment.action
    if action is Action.CANCEL and held.state is State.CANCELLED:
        return Answer.DONE, None
    if held.state not in ALLOWED[action]:
        marks = action in _STOPPING and held.state is State.LEASED and not held.cancel_pending
        return Answer.RELEASED, Change.MARK if marks else None
    if amendment.version is not None and amendment.version != held.version:
        return Answer.CONFLICT, None
    return Answer.DONE, Change.REMOVE if action in REMOVING else Change.MAKE
