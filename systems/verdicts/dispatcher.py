"""Everybody who lined up got one valid token, in turn, and no event held more than its slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from systems.run import Running
from systems.verdict import Reports, Row, Verdict, late, none_of

QUANTILES = ("p50", "p99")


def verdict(reports: Reports) -> Verdict:
    brokers = reports["broker"]

    def total(name: str) -> int:
        return sum(broker[name] for broker in brokers)

    joined, promoted = total("joined"), total("promoted")
    seconds = max(broker["seconds"] for broker in brokers)
    rate = max(broker["promotions_per_second"] for broker in brokers)
    return Verdict(
        [
            Row("in", f"{joined:,} users ({joined / seconds:,.0f}/s)", holds=joined > 0),
            Row("out", f"{total('entered'):,} entered with a token"),
            Row("promotions", f"{promoted:,} ({rate:,.0f}/s)"),
            none_of("lost", total("lost")),
            none_of("early, without a free slot", _over(brokers)),
            none_of("repeated", total("repeated")),
            none_of("invalid tokens", total("invalid_tokens")),
            none_of("told to another instance", total("wrong_instance")),
            none_of("wrong promotedAt", total("wrong_promoted_at")),
            *_capacity(brokers),
            Row(
                "first come, first in",
                f"{total('order_violations'):,} overtaken",
                holds=total("order_violations") == 0,
            ),
            Row("without a record", f"{total('late_records'):,}: it came more than 2 s too late"),
            late(_worst(brokers, "late_ms")),
            Row("wait", late(_worst(brokers, "wait_ms")).value),
        ]
    )


async def drained(system: Running) -> bool:
    """The brokers end only when their last user has left, or report that user as lost."""
    del system
    return True


def _over(brokers: Sequence[Mapping[str, Any]]) -> int:
    """Every broker sees the promotions of all: the one that saw most counts."""
    seen = [sum(event["over"] for event in broker["events"].values()) for broker in brokers]
    return max(seen, default=0)


def _capacity(brokers: Sequence[Mapping[str, Any]]) -> list[Row]:
    """One row per event: the most slots in use that any broker saw."""
    rows = []
    for event, seen in sorted(brokers[0]["events"].items()):
        most = max(broker["events"][event]["most_in_use"] for broker in brokers)
        text = f"{most:,} of {seen['capacity']:,} slots in use at most"
        rows.append(Row(event, text, holds=most <= seen["capacity"]))
    return rows


def _worst(brokers: Sequence[Mapping[str, Any]], name: str) -> dict[str, int | None]:
    """Each quantile of the broker for which it was longest."""
    return {
        quantile: max((broker[name][quantile] or 0 for broker in brokers), default=None)
        for quantile in QUANTILES
    }
