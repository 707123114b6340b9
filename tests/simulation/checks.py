"""What must be true of a whole run, message by message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.model.outcome import Delivered
from penstock.model.state import State
from tests.simulation.receiver import Send
from tests.simulation.visitors import ROOM
from tests.simulation.visits import IDLE

if TYPE_CHECKING:
    from tests.simulation.ledger import Known
    from tests.simulation.world import World

LOST = "1.1 nothing accepted is lost"
EARLY = "1.2 never early"
ONCE = "1.3 at least once, and almost always once"
ATTEMPTS = "1.3 a repeated send has a higher attempt"
DEFINITE = "1.5 a definite answer"
ENDS = "1 every end has its reason"
TAKEN = "1.1 every record of a source is kept or buried"
WINDOW = 10_000
LIMIT = 2
NOTICED = 2_500
"""By then every process knows that there are policies."""


async def check(world: World) -> None:
    sends = by_message(world)
    ledger = world.server.books.ledger
    _check_accepted(world, sends)
    for name, known in {**ledger.forgotten, **ledger.known}.items():
        _check_end(world, name, known, sends.get(name, []))
    for name, got in sends.items():
        # An id that was forgotten and put again is another message.
        for created in sorted({send.message.created for send in got}):
            _check_sends(world, name, [s for s in got if s.message.created == created])
    _check_cancelled(world, sends)
    _check_source(world)
    _check_policies(world, sends)
    if world.plan.rooms and (told := world.server.books.visits.idle(ROOM, world.clock.now())):
        world.journal.fail(IDLE, ROOM, told)
    ids = list(ledger.known)

    held = await world.insist(lambda life: life.store.find(ids))
    if isinstance(held, list):
        ledger.compare_all(held)


def by_message(world: World) -> dict[str, list[Send]]:
    """Every send, in the order they began."""
    found: dict[str, list[Send]] = defaultdict(list)
    for receiver in world.receivers.values():
        for send in receiver.sends:
            found[send.message.id].append(send)
    return found


def _check_accepted(world: World, sends: dict[str, list[Send]]) -> None:
    ledger = world.server.books.ledger
    for name in world.callers.answers.accepted:
        if name not in ledger.known and name not in ledger.forgotten:
            world.journal.fail(LOST, name, "accepted, and the store never had it")
    for name, (asked, delay) in world.callers.answers.by_delay.items():
        if name in world.callers.answers.moved or name in ledger.forgotten or world.jumped:
            continue
        for send in sends.get(name, ()):
            if send.began_server < asked + delay * 1000 - _clock_error(world):
                world.journal.fail(EARLY, name, f"asked {delay} s, sent sooner")


def _clock_error(world: World) -> int:
    """A delay is reckoned on the clock a process takes for the store's."""
    return max((abs(process.offset) for process in world.plan.processes), default=0)


def _check_end(world: World, name: str, known: Known, sends: Sequence[Send]) -> None:
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
        world.journal.fail(LOST if known.state is State.DELIVERED else ENDS, name, told)


def _check_sends(world: World, name: str, sends: Sequence[Send]) -> None:
    ours = [send for send in sends if not send.by_network]
    for send in ours:
        if send.began_server < send.message.due and not world.jumped:
            world.journal.fail(EARLY, name, f"sent {send.message.due - send.began_server} ms early")
    for before, after in pairwise(ours):
        if after.message.attempt <= before.message.attempt and not world.jumped:
            told = f"{before.message.attempt}, then {after.message.attempt}"
            world.journal.fail(ATTEMPTS, name, told)
        _check_repeat(world, name, before, after)


def _check_repeat(world: World, name: str, before: Send, after: Send) -> None:
    """After a send that arrived and was answered, another one needs a fault between them."""
    if before.arrived is None or not isinstance(before.outcome, Delivered):
        return
    if not world.journal.troubled(before.who, before.began, after.began):
        world.journal.fail(ONCE, name, f"sent again by {after.who} without any fault")


def _check_cancelled(world: World, sends: dict[str, list[Send]]) -> None:
    for name, at in world.callers.answers.cancelled.items():
        if name in world.server.books.ledger.forgotten:
            continue  # put again since, perhaps
        for send in sends.get(name, ()):
            if send.began > at:
                world.journal.fail(DEFINITE, name, "sent after its cancel was answered with done")


def _check_source(world: World) -> None:
    ledger = world.server.books.ledger
    for name, origin in world.callers.answers.published.items():
        if name not in ledger.known and name not in ledger.forgotten:
            world.journal.fail(TAKEN, name, f"{origin} is done, and nothing was put")
    for origin in world.callers.answers.poison:
        if f"dead:{origin}" not in world.broker.buried:
            world.journal.fail(TAKEN, origin, "poison is neither kept nor buried")


def _check_policies(world: World, sends: dict[str, list[Send]]) -> None:
    """A cap that bound from before the first message to the mending."""
    plan, rulings = world.plan, world.server.books.rulings
    changed = {event.detail for event in plan.events}
    if "cap" in plan.policies and "cap" not in changed and not world.jumped and not plan.skewed:
        arrivals: dict[str, list[tuple[int, str]]] = defaultdict(list)
        mended = next(line.elapsed for line in world.journal.lines if line.what == "MENDED")
        for name, got in sends.items():
            for send in got:
                if send.arrived is not None and send.began >= NOTICED and send.arrived < mended:
                    arrivals[send.message.key].append((send.arrived, name))
        rulings.check_window(arrivals, LIMIT, WINDOW)
