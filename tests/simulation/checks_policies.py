"""What policies promise, held against what reached the sinks."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable

from penstock.flow.policies import REFRESH_MS
from tests.simulation.fleet import Fleet
from tests.simulation.plan import Kind, is_away
from tests.simulation.policies import PACES, WINDOWS
from tests.simulation.receiver import Send
from tests.simulation.rulings import PACE, Allowed

CAPS = "4 no window exceeds its limit"
HEARD = "4 every process hears of the first policy before long"
NOTICED_MS = 2 * REFRESH_MS + 1_000
DECIDED = "4 whoever knows of policies decides before every send"


def check_policies(fleet: Fleet, sends: dict[str, list[Send]]) -> None:
    ours = [send for got in sends.values() for send in got if not send.by_network]
    granted = _granted(fleet, ours)
    if not fleet.jumped:
        _check_paces(fleet, granted)
    if not fleet.jumped and not fleet.plan.skewed:
        for policy_id in WINDOWS:
            _check_cap(fleet, policy_id, ours, {id(send) for send in granted.values()})


def _granted(fleet: Fleet, sends: Iterable[Send]) -> dict[Allowed, Send]:
    """Every ALLOW that was used, with its one send."""
    rulings = fleet.server.books.rulings
    unused: dict[tuple[str, str], list[Allowed]] = defaultdict(list)
    for allowed in rulings.allowed:
        unused[allowed.who, allowed.message_id].append(allowed)
    granted: dict[Allowed, Send] = {}
    parted: dict[tuple[str, str, int], int] = {}
    """When an attempt began whose parts are sent again: what is known then was decided by."""
    for send in sorted(sends, key=lambda send: send.order):
        name = send.message.id
        attempt = (send.who, name, send.message.attempt)
        if send.parted:
            parted.setdefault(attempt, send.began)
            continue  # what it was allowed by, its parts are
        mine = [one for one in unused[send.who, name] if one.elapsed <= send.began]
        if mine:
            granted[mine[-1]] = send
            unused[send.who, name].remove(mine[-1])
        elif rulings.bound(send.who, parted.get(attempt, send.began)):
            fleet.journal.fail(DECIDED, name, f"{send.who} sent it, and nothing allowed it")
        elif _should_know(fleet, send):
            fleet.journal.fail(HEARD, name, f"{send.who} sent it, and knows of no policy")
    return granted


def _should_know(fleet: Fleet, send: Send) -> bool:
    """There have been policies for long enough, and nothing kept this process from hearing it."""
    noticed = send.began - NOTICED_MS
    since = fleet.server.books.rulings.bind_since(send.began)
    return (
        since is not None
        and since < noticed
        and not fleet.jumped
        and not fleet.journal.troubled(send.who, noticed, send.began)
        and not _unreadable(fleet, send.who, since)
    )


def _unreadable(fleet: Fleet, who: str, since: int) -> bool:
    """Whether the policies' part of the store was away for ever before this process could read it.

    A process that knew of no policy when it last could read them goes on without: that part is
    away for those too who never had a policy. Only one that had the time to read them, with no
    fault on its way, must know.
    """
    if not is_away(fleet.plan.stays, "policies"):
        return False
    journal = fleet.journal
    away = next((line.elapsed for line in journal.lines if line.what == "STAYS"), None)
    if away is None:
        return False
    quiet = [max(since, one.elapsed + 1, one.until) for one in journal.troubles]
    return not any(
        begin + NOTICED_MS <= away and not journal.troubled(who, begin, begin + NOTICED_MS)
        for begin in (since, *quiet)
    )


def _check_paces(fleet: Fleet, granted: dict[Allowed, Send]) -> None:
    """What reaches the sinks is what was allowed, at most as much later as it was on its way."""
    for policy_id, runs in fleet.server.books.rulings.paced.items():
        promised = PACES[policy_id]
        for run in runs:
            arrived = sorted(
                (send.arrived_server, allowed.now, allowed.message_id)
                for allowed in run
                if (send := granted.get(allowed)) is not None and send.arrived is not None
            )
            for last, (at, _, message_id) in enumerate(arrived):
                oldest = at
                for number, (_, now, _) in enumerate(reversed(arrived[: last + 1]), start=1):
                    oldest = min(oldest, now)
                    if promised.exceeded(number, at - oldest):
                        told = f"{policy_id}: {number} arrived in {at - oldest} ms"
                        fleet.journal.fail(PACE, message_id, told)


def _check_cap(fleet: Fleet, policy_id: str, sends: Iterable[Send], decided: set[int]) -> None:
    """A cap that bound from before the first message to the mending.

    A message counts once, when it first arrived by a send that was decided: also where its process
    heard of policies in that very millisecond. One that was given up by another process before it
    arrived was counted then: it is left out. A cap knows an id that it counted for a while,
    and one that is forgotten and put again meanwhile is no new one to it.
    """
    plan, rulings = fleet.plan, fleet.server.books.rulings
    changed = {event.detail for event in plan.events if event.kind is Kind.POLICY}
    if policy_id not in plan.policies or policy_id in changed:
        return
    mended = next(line.elapsed for line in fleet.journal.lines if line.what == "MENDED")
    first: dict[str, dict[str, int]] = defaultdict(dict)
    for send in sends:
        at, key, name = send.arrived, send.message.key, send.message.id
        bound = id(send) in decided or rulings.bound(send.who, send.began)
        if at is not None and at < mended and bound:
            first[key][name] = min(at, first[key].get(name, at))
    limit, window = WINDOWS[policy_id]
    for key, arrivals in first.items():
        for name in [name for name, at in arrivals.items() if rulings.counted_before(name, at)]:
            del arrivals[name]
        times = sorted(arrivals.values())
        for number, at in enumerate(times):
            inside = bisect_right(times, at + window - 1) - number
            if inside > limit:
                told = f"{inside} of {limit} in {window} ms"
                within = [name for name, when in arrivals.items() if at <= when < at + window]
                fleet.journal.fail(CAPS, key, told, within)
                break
