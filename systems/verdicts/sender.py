"""Every notification that may go is at the provider once, at a rate it takes, no receiver over a
cap; what was blocked, has expired or must wait was not sent."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Any

import httpx

from systems.run import Running
from systems.verdict import Reports, Row, Verdict, late, none_of

CAP, QUIET = "daily", "nights"
"""Policies of the example."""
LIMIT = 3
"""Of the cap: pushes to one receiver in a window that is longer than the run."""
CAPPED, QUIET_TYPE = "social", "promotional"
"""Types of notifications that the cap counts, and that quiet hours hold back all day."""
IN_FLIGHT = 64
"""Requests of the push worker under way at once, which a provider that stalls may get together."""
BURST = 10
"""Of the example's pace towards the provider."""
SPAN_MS = 5_000
LAST_MINUTE = 86_340_000
"""Milliseconds of a day in UTC: after this the example's quiet hours are not quiet."""

_held: dict[str, str] = {}
"""Id → the policy that holds it back, as `drained` saw it last."""
_pace: dict[str, float] = {}
"""`rate`: requests a second that the provider takes."""


async def drained(system: Running) -> bool:
    """Whether everything that was published is at the provider, settled, or held by a policy."""
    (maker,) = [child for child in system.children if child.name == "decisions"]
    published = (maker.report() or {}).get("totals", {}).get("items", 0)
    rate, _, _ = system.words["pace"].partition("/")
    _pace["rate"] = float(rate)
    async with system.client(30) as client:
        throttler = await _states(client, f"http://{system.words['api']}")
        push = await _states(client, f"http://{system.words['push']}")
        if sum(throttler.values()) < published or throttler.get("leased"):
            return False
        if sum(push.values()) < throttler.get("delivered", 0):
            return False
        if push.get("scheduled") or push.get("leased"):
            return False
        held = await _scheduled(client, f"http://{system.words['api']}")
    _held.clear()
    _held.update(held)
    return all(policy in {CAP, QUIET} for policy in held.values())


async def _states(client: httpx.AsyncClient, url: str) -> dict[str, int]:
    answer = await client.get(f"{url}/v1/stats")
    answer.raise_for_status()
    states: dict[str, int] = answer.json()["states"]
    return states


async def _scheduled(client: httpx.AsyncClient, url: str) -> dict[str, str]:
    """Id → the policy that deferred it; empty: none did."""
    found: dict[str, str] = {}
    page: dict[str, str] = {"state": "scheduled", "limit": "1000"}
    while True:
        answer = await client.get(f"{url}/v1/messages", params=page)
        answer.raise_for_status()
        said = answer.json()
        for item in said["items"]:
            found[item["id"]] = (item.get("reason") or {}).get("policy", "")
        if said["next"] is None:
            return found
        page["cursor"] = said["next"]


def verdict(reports: Reports) -> Verdict:
    return judge(reports, dict(_held), _pace.get("rate", 0))


def judge(reports: Reports, held: dict[str, str], rate: float) -> Verdict:
    """`held`: id → policy of what waits in the throttler; `rate`: requests a second to the
    provider."""
    (maker,), (provider,) = reports["decisions"], reports["provider"]
    totals: dict[str, Any] = maker["totals"]
    decided: dict[str, dict[str, Any]] = {one["id"]: one for one in totals["each"]}
    accepted: list[dict[str, Any]] = provider["accepted"]
    sent = Counter(one["id"] for one in accepted)
    blocked = {name for name, one in decided.items() if one["verdict"] in {"BLOCK", "DROP"}}
    expired = {name for name, one in decided.items() if one["expired"]} - blocked
    may_go = decided.keys() - blocked - expired
    quiet = {name for name in may_go if decided[name]["type"] == QUIET_TYPE}
    waits = {name for name, policy in held.items() if policy == CAP}
    lost = may_go - sent.keys() - held.keys()
    verdicts = ", ".join(f"{n:,} {word}" for word, n in totals["verdicts"].items())
    return Verdict(
        [
            Row("in", f"{totals['items']:,} notifications ({verdicts})", holds=bool(sent)),
            Row("out", f"{len(sent):,} pushes"),
            none_of("lost", len(lost)),
            none_of("early", _early(accepted, decided)),
            Row("repeated", f"{sent.total() - len(sent):,}"),
            late(_lateness(accepted, decided)),
            _unsent("blocked", blocked, sent),
            _unsent("expired", expired, sent),
            _unsent("held by quiet hours", quiet, sent, _after_hours(accepted)),
            Row("held by the cap", f"{len(waits):,}"),
            _cap(accepted, decided),
            _rate(provider["arrivals"], rate),
            none_of("not from here", len(sent.keys() - decided.keys())),
        ]
    )


def _unsent(
    what: str, names: set[str], sent: Counter[str], excused: frozenset[str] = frozenset()
) -> Row:
    wrongly = len((names & sent.keys()) - excused)
    return Row(what, f"{len(names):,}, {wrongly:,} of them sent", holds=wrongly == 0)


def _early(accepted: list[dict[str, Any]], decided: dict[str, dict[str, Any]]) -> int:
    known = (one for one in accepted if one["id"] in decided)
    return sum(one["at"] < decided[one["id"]]["may_go"] for one in known)


def _lateness(
    accepted: list[dict[str, Any]], decided: dict[str, dict[str, Any]]
) -> dict[str, int | None]:
    """Of those that no cap can have held back: from when they may go to the provider."""
    asked = Counter(
        who for one in decided.values() if one["type"] == CAPPED for who in one["receivers"]
    )
    lates = sorted(
        one["at"] - decided[one["id"]]["may_go"]
        for one in accepted
        if one["attempt"] == 1
        and one["id"] in decided
        and all(asked[who] <= LIMIT for who in decided[one["id"]]["receivers"])
    )
    if not lates:
        return {"p50": None, "p99": None}
    return {name: lates[int(share * (len(lates) - 1))] for name, share in _QUANTILES.items()}


_QUANTILES = {"p50": 0.5, "p99": 0.99, "max": 1.0}


def _after_hours(accepted: list[dict[str, Any]]) -> frozenset[str]:
    """What was sent in the minute of the day that is not quiet, or just after it."""
    spread = 120_000
    return frozenset(
        one["id"] for one in accepted if (one["at"] - LAST_MINUTE) % 86_400_000 < spread
    )


def _cap(accepted: list[dict[str, Any]], decided: dict[str, dict[str, Any]]) -> Row:
    """By what the provider got: each receiver of each push, repeats once."""
    got = {one["id"]: one["receivers"] for one in accepted if one["id"] in decided}
    counts = Counter(
        who
        for name, receivers in got.items()
        if decided[name]["type"] == CAPPED
        for who in set(receivers)
    )
    most = max(counts.values(), default=0)
    full = sum(number == LIMIT for number in counts.values())
    text = f"at most {most} of {LIMIT} to a receiver; {full:,} have had all"
    return Row("cap kept", text, holds=most <= LIMIT)


def _rate(arrivals: list[int], rate: float) -> Row:
    """Requests in any five seconds: what the pace lets go in that time, its burst, and those that
    were under way before."""
    arrivals = sorted(arrivals)
    busiest = max(
        (bisect_left(arrivals, at + SPAN_MS) - place for place, at in enumerate(arrivals)),
        default=0,
    )
    most = int(rate * SPAN_MS / 1000) + BURST + IN_FLIGHT
    text = f"at most {busiest:,} requests in 5 s, {most:,} allowed at {rate:g}/s"
    return Row("provider's rate kept", text, holds=busiest <= most)
