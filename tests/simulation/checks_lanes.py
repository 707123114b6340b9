"""What routes promise of each other and of their keys, held against what reached the sinks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from penstock.flow.release import AHEAD_MS
from tests.simulation.callers import is_open
from tests.simulation.fleet import Fleet
from tests.simulation.ledger import TURNS
from tests.simulation.plan import Kind, Route, is_away
from tests.simulation.receiver import Send

APART = "1.6 one slow or dead sink never delays another route"
TO_RECOVER_MS = 12_000
"""How long the fleet may feel a fault that is over: a process that is down, leases to run out."""


def check_lanes(fleet: Fleet) -> None:
    for route in fleet.plan.routes:
        if route.ordered:
            _check_order(fleet, route, fleet.receivers[route.name].sends)
        if _is_calm(fleet, route):
            _check_lateness(fleet, route)


def _check_order(fleet: Fleet, route: Route, sends: list[Send]) -> None:
    """Once a message has been sent, nothing else of its key is before it has come to its end.

    A message that was given another key or route is not of this key any more. One that was sent
    elsewhere before it was given this one comes as a retry: beside a retry that is there already,
    the two go by due, as everything else of a key does.
    """
    ledger = fleet.server.books.ledger
    known = {  # an id that was forgotten and put again is another message
        name: one for name, one in ledger.known.items() if name not in ledger.forgotten
    }
    begun: dict[str, set[str]] = {}
    for send in sends:
        name, key = send.message.id, send.message.key
        if send.by_network or name not in known:
            continue
        retries = begun.setdefault(key, set())
        came = known[name].came_as_retry(send.began)
        for other in sorted(retries - {name}):
            redriven = known[other].floor > 0
            left = known[other].line_at(send.began) != (route.name, key)
            if redriven or left or not is_open(known[other].state_at(send.began)):
                continue
            if came or (name in retries and known[other].came_as_retry(send.began)):
                continue
            # A lease that was lost and taken by another is no turn any more.
            if not fleet.journal.troubled(send.who, send.began - TO_RECOVER_MS, send.began):
                fleet.journal.fail(TURNS, name, f"sent while {other} of {key} is under way")
        retries.add(name)


def _is_calm(fleet: Fleet, route: Route) -> bool:
    """Nothing but the other routes' sinks and the fleet's faults delays what is due here."""
    plan = fleet.plan
    held_back = any(
        event.detail == "pace" or (event.kind is Kind.PAUSE and event.target == route.name)
        for event in plan.events
    )
    undecided = bool(plan.policies) and is_away(plan.stays, "policies")
    receiver = fleet.receivers[route.name]
    return not (
        held_back
        or undecided
        or "pace" in plan.policies
        or fleet.jumped
        or route.slow
        or route.per_key
        or receiver.moody
    )


def _check_lateness(fleet: Fleet, route: Route) -> None:
    plan = fleet.plan
    troubles = sorted((trouble.until, trouble.elapsed) for trouble in fleet.journal.troubles)
    sends = [send for send in fleet.receivers[route.name].sends if not send.by_network]
    times = [send.began for send in sends]
    first = {send.message.id: send for send in reversed(sends)}
    network = max(process.delay for process in plan.processes)
    each = 2 * route.delay + 8 * network + 60
    wrong = max(abs(process.offset) for process in plan.processes)
    began = fleet.clock.now() - fleet.clock.elapsed()
    for name, send in first.items():
        at, message = send.began, send.message
        ready = max(message.due, message.created) - began
        felt = ready - TO_RECOVER_MS - 2 * plan.lease
        if message.attempt > 1 or any(until >= felt and since <= at for until, since in troubles):
            continue
        before_it = bisect_right(times, at) - bisect_left(times, ready)
        allowed = plan.poll + plan.gather + AHEAD_MS + wrong + network + (before_it + 1) * each
        if at - ready > allowed:
            told = f"sent {at - ready} ms late, {before_it} of {route.name} before it"
            fleet.journal.fail(APART, name, told)
