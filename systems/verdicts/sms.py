"""Every SMS that RabbitMQ confirmed was sent or finally failed, and is counted once."""

from __future__ import annotations

from penstock.contrib.sms.stats import SmsStats
from penstock.sim.errors import Unreachable
from systems.run import Running
from systems.verdict import Reports, Row, Verdict, none_of

PRODUCER, SENDER = "sms-producer", "sms-sender"


def verdict(reports: Reports) -> Verdict:
    # In containers each sender is a process of its own; the figures of all of them are in Redis.
    (producer,), (*_, figures) = reports[PRODUCER], reports[SENDER]
    produced, sent, failed = producer["published"], figures["sent"], figures["failed"]
    ended, average = sent + failed, figures["average_seconds"]
    return Verdict(
        [
            Row("produced", f"{produced:,} SMS, confirmed by RabbitMQ", holds=produced > 0),
            Row("sent", f"{sent:,}"),
            Row("failed", f"{failed:,}, after their last attempt"),
            Row("attempts", f"{figures['attempts']:,} ({figures['retried']:,} were retried)"),
            Row("sent + failed", f"{ended:,} = produced", holds=ended == produced)
            if ended == produced
            else Row("sent + failed", f"{ended:,}, not {produced:,}", holds=False),
            none_of("lost", max(0, produced - ended)),
            none_of("rejected", figures["rejected"]),
            Row("repeated", f"{figures['repeated']:,} went out twice"),
            Row("average time", "–" if average is None else f"{average:.3f} s with the provider"),
            Row("early, late", "do not apply: an SMS goes out when a sender is free"),
        ]
    )


async def drained(system: Running) -> bool:
    """Whether as many came to an end as the producer reported."""
    produced = 0
    for child in system.children:
        if child.command.spec.name == PRODUCER:
            produced += (child.report() or {}).get("published", 0)
    stats = SmsStats.at(f"redis://{system.words['redis']}/0", f"sms_queue{system.words['suffix']}")
    try:
        figures = await stats.read()
    except Unreachable:
        return False
    finally:
        await stats.close()
    return figures.sent + figures.failed >= produced
