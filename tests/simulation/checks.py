"""What must be true of a whole run, message by message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter

from penstock.model.outcome import Delivered, Retry
from penstock.model.state import State
from tests.simulation.callers import Answers, is_open
from tests.simulation.checks_lanes import check_lanes
from tests.simulation.checks_policies import check_policies
from tests.simulation.entries import DISPATCHED
from tests.simulation.fleet import Fleet
from tests.simulation.ledger import Known
from tests.simulation.plan import is_away
from tests.simulation.receiver import Send
from tests.simulation.signer import PlainSigner
from tests.simulation.visitors import ROOM
from tests.simulation.visits import IDLE

LOST = "1.1 nothing accepted is lost"
EARLY = "1.2 never early"
ONCE = "1.3 at least once, and almost always once"
ATTEMPTS = "1.3 a repeated send has a higher attempt"
DEFINITE = "1.5 a definite answer"
ENDS = "1 every end has its reason"
LATE = "1 what has expired is not sent"
ASKED_TO_WAIT = "1 a sink that asks for time gets it"
TAKEN = "1.1 every record of a source is kept or buried"


async def check(fleet: Fleet, answers: Answers) -> None:
    sends = by_message(fleet)
    ledger = fleet.server.books.ledger
    _check_accepted(fleet, answers, sends)
    _check_waits(fleet, answers, sends)
    for name, known in {**ledger.forgotten, **ledger.known}.items():
        _check_end(fleet, name, known, sends.get(name, []))
    for name, got in sends.items():
        # An id that was forgotten and put again is another message.
        for created in sorted({send.message.created for send in got}):
            _check_sends(fleet, name, [s for s in got if s.message.created == created])
    _check_cancelled(fleet, answers, sends)
    _check_source(fleet, answers)
    check_policies(fleet, sends)
    check_lanes(fleet)
    _check_room(fleet)
    ids = [name for name, known in ledger.known.items() if not is_open(known.state)]
    held = await fleet.insist(lambda life: life.store.find(ids))
    if isinstance(held, list):
        ledger.compare_all(ids, held)


def by_message(fleet: Fleet) -> dict[str, list[Send]]:
    """Every send, in the order they began: a message that is replaced may change its route."""
    found: dict[str, list[Send]] = defaultdict(list)
    sends = [send for receiver in fleet.receivers.values() for send in receiver.sends]
    for send in sorted(sends, key=attrgetter("order")):
        found[send.message.id].append(send)
    return found


def _check_accepted(fleet: Fleet, answers: Answers, sends: dict[str, list[Send]]) -> None:
    ledger = fleet.server.books.ledger
    for name in answers.accepted:
        if name not in ledger.known and name not in ledger.forgotten:
            fleet.journal.fail(LOST, name, "accepted, and the store never had it")
    for name, (asked, delay) in answers.by_delay.items():
        if name in answers.moved or name in ledger.forgotten or fleet.jumped:
            continue
        for send in sends.get(name, ()):
            if send.began_server < asked + delay * 1000 - _clock_error(fleet):
                fleet.journal.fail(EARLY, name, f"asked {delay} s, sent sooner")


def _clock_error(fleet: Fleet) -> int:
    """A delay is reckoned on the clock a process takes for the store's."""
    return max((abs(process.offset) for process in fleet.plan.processes), default=0)


def _check_end(fleet: Fleet, name: str, known: Known, sends: Sequence[Send]) -> None:
    told = ""
    arrived = [send for send in sends if send.arrived is not None]
    match known.state:
        case State.DELIVERED if not arrived:
            told = "delivered, and it never arrived"
        case State.CANCELLED if not known.cancelled_by:
            told = "cancelled, and nobody asked for it"
        case State.BLOCKED if not known.blocked_by:
            told = "blocked, and no policy said so"
        case State.EXPIRED if known.expires is None:
            told = "expired, and it never does"
        case State.DEAD if not known.error:
            told = "dead without a reason"
    if told:
        fleet.journal.fail(LOST if known.state is State.DELIVERED else ENDS, name, told)


def _check_sends(fleet: Fleet, name: str, sends: Sequence[Send]) -> None:
    ours = [send for send in sends if not send.by_network]
    for send in ours:
        if send.began_server < send.message.due and not fleet.jumped:
            fleet.journal.fail(EARLY, name, f"sent {send.message.due - send.began_server} ms early")
        _check_expired(fleet, send)
    for before, after in pairwise(ours):
        same = before.parted and after.message.attempt == before.message.attempt
        if after.message.attempt <= before.message.attempt and not same and not fleet.jumped:
            told = f"{before.message.attempt}, then {after.message.attempt}"
            fleet.journal.fail(ATTEMPTS, name, told)
        _check_repeat(fleet, name, before, after)


def _check_expired(fleet: Fleet, send: Send) -> None:
    """Looked at when it was claimed: what expires while it is on its way may still arrive."""
    claimed, expires = send.message.claimed, send.message.expires
    if claimed is None or expires is None or fleet.jumped:
        return
    if claimed >= expires + _clock_error(fleet):
        told = f"claimed {claimed - expires} ms after it expired, and sent"
        fleet.journal.fail(LATE, send.message.id, told)


def _check_waits(fleet: Fleet, answers: Answers, sends: dict[str, list[Send]]) -> None:
    """Retry-After, unless somebody asked for another moment, or a fault lost what was answered."""
    ledger = fleet.server.books.ledger
    for name, got in sends.items():
        known = ledger.known.get(name)
        if known is None or known.floor or name in answers.moved or fleet.jumped:
            continue
        for before, after in pairwise(send for send in got if not send.by_network):
            wait = before.outcome.after if isinstance(before.outcome, Retry) else None
            if wait is None or before.ended is None:
                continue
            early = before.ended + wait * 1000 - _clock_error(fleet) - after.began
            if early > 0 and not fleet.journal.troubled(before.who, before.began, after.began):
                fleet.journal.fail(ASKED_TO_WAIT, name, f"sent again {early:.0f} ms too soon")


def _check_repeat(fleet: Fleet, name: str, before: Send, after: Send) -> None:
    """After a send that arrived and was answered, another one needs a fault between them."""
    if before.arrived is None or not isinstance(before.outcome, Delivered):
        return
    if not fleet.journal.troubled(before.who, before.began, after.began):
        fleet.journal.fail(ONCE, name, f"sent again by {after.who} without any fault")


def _check_cancelled(fleet: Fleet, answers: Answers, sends: dict[str, list[Send]]) -> None:
    for name, at in answers.cancelled.items():
        if name in fleet.server.books.ledger.forgotten:
            continue  # put again since, perhaps
        for send in sends.get(name, ()):
            if send.began > at:
                fleet.journal.fail(DEFINITE, name, "sent after its cancel was answered with done")


def _check_source(fleet: Fleet, answers: Answers) -> None:
    ledger = fleet.server.books.ledger
    for name, origin in answers.published.items():
        if name not in ledger.known and name not in ledger.forgotten:
            fleet.journal.fail(TAKEN, name, f"{origin} is done, and nothing was put")
    for origin in answers.poison:
        if f"dead:{origin}" not in fleet.broker.buried:
            fleet.journal.fail(TAKEN, origin, "poison is neither kept nor buried")


def _check_room(fleet: Fleet) -> None:
    if not fleet.plan.rooms or is_away(fleet.plan.stays, "rooms"):
        return
    visits, journal = fleet.server.books.visits, fleet.journal
    now = fleet.clock.now()
    if told := visits.idle(ROOM, now):
        journal.fail(IDLE, ROOM, told)
    if visits.stream is None:
        return
    for pass_id, ticket in visits.passes.items():
        passed = visits.stream.passed_on.get(pass_id)
        if passed is None:
            journal.fail(DISPATCHED, ticket.user, f"{pass_id} was never passed on")
        elif PlainSigner().holder(passed.token) != (ROOM, ticket.user, pass_id):
            journal.fail(DISPATCHED, ticket.user, f"{pass_id} came with {passed.token}")
