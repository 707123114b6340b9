"""Every event that was accepted and not cancelled is on the topic it names, once and not early.

Client and consumer report sets of ids, so that this is known of every single event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from penstock.contrib.scheduler_service.ids import Numbers, event_id
from systems.verdict import Reports, Row, Verdict, late, none_of

if TYPE_CHECKING:
    from systems.run import Running

SHOWN = 5
"""Ids that are named where something is wrong."""
SOURCE = "schedule_events"
GROUP = f"penstock-{SOURCE}"


def verdict(reports: Reports) -> Verdict:
    (client,), (consumer,) = reports["client"], reports["consumer"]
    asked, came = client["totals"], consumer["totals"]
    run = asked["run"]
    sets = {name: Numbers.of_text(text) for name, text in asked["ids"].items()}
    out = _numbers(came["ids"], run)
    refused = _numbers(came["refused_ids"], run)
    optional = [sets["late"], sets["unsure"], sets["refused"], refused]
    lost = [
        number
        for number in sets["scheduled"]
        if number not in out
        and number not in sets["cancelled"]
        and not any(number in allowed for allowed in optional)
    ]
    stray = [n for n in out if n not in sets["scheduled"] and n not in sets["unsure"]]
    leaked = [number for number in sets["cancelled"] if number in out]
    ways = asked["ways"]
    return Verdict(
        [
            Row("in", _in(asked, client["rate"]), holds=asked["scheduled"] > 0),
            *(_way(name, way["scheduled"]) for name, way in ways.items()),
            Row("out", f"{len(out):,} events"),
            _offending("lost", run, lost),
            _counted("early", came["early"], came["samples"].get("early", [])),
            Row("repeated", f"{came['repeats']:,}"),
            late(came["lateness_ms"]),
            Row("sent again", f"{asked['repeated']:,} ids by another way"),
            _counted(
                "scheduled twice",
                came["doubles"] + len(asked["scheduled_twice"]),
                [*came["samples"].get("doubles", []), *asked["scheduled_twice"]],
            ),
            Row("cancelled", f"{asked['cancelled']:,} ({asked['cancelled_late']:,} too late)"),
            _offending("cancelled and sent", run, leaked),
            none_of("accepted, then unknown", asked["cancelled_unknown"]),
            _counted("on another topic", came["misplaced"], came["samples"].get("misplaced", [])),
            _offending("not scheduled", run, stray),
            Row("refused", f"{asked['refused'] + came['refused']:,}"),
            *([Row("answer lost", f"{asked['unsure']:,}")] if asked["unsure"] else []),
        ]
    )


async def drained(system: Running) -> bool:
    """Every record of schedule_events is taken in, and the store holds nothing to send."""
    states = (await system.stats()).get("states", {"scheduled": 1})
    if any(states.get(state) for state in ("scheduled", "leased")):
        return False
    topic = f"{SOURCE}{system.words['suffix']}"
    return await asyncio.to_thread(_lag, system.words["kafka"], topic) == 0


def _lag(brokers: str, topic: str) -> int | None:
    """Records that the workers have not taken in; None: not known now."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": GROUP, "log_level": 2})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        places = consumer.committed([TopicPartition(topic, p) for p in partitions], timeout=10)
        ends = [consumer.get_watermark_offsets(place, timeout=10)[1] for place in places]
        return sum(
            max(0, end - max(0, place.offset)) for place, end in zip(places, ends, strict=True)
        )
    except KafkaException:
        return None
    finally:
        consumer.close()


def _numbers(texts: dict[str, str], run: str) -> Numbers:
    return Numbers.of_text(texts[run]) if run in texts else Numbers()


def _in(asked: dict[str, int], rate: float) -> str:
    return f"{asked['scheduled']:,} events ({rate:,.0f}/s)"


def _way(name: str, scheduled: int) -> Row:
    return Row(f"  by {name}", f"{scheduled:,}", holds=scheduled > 0)


def _offending(what: str, run: str, numbers: Sequence[int]) -> Row:
    return _counted(what, len(numbers), [event_id(run, number) for number in numbers[:SHOWN]])


def _counted(what: str, number: int, ids: Sequence[str]) -> Row:
    """A row that holds when there are none, and else names some of them."""
    named = f": {', '.join(ids[:SHOWN])}{' …' if number > SHOWN else ''}" if ids else ""
    return Row(what, f"{number:,}{named}", holds=not number)
