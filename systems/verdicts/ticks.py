"""Every tick that the API took is on the topic, none before its moment."""

from __future__ import annotations

from systems.verdict import Reports, Row, Verdict, late, none_of


def verdict(reports: Reports) -> Verdict:
    (generator,), (consumer,) = reports["generator"], reports["consumer"]
    generated, consumed = generator["totals"], consumer["totals"]
    taken, arrived = generated["generated"], consumed["distinct"]
    rows = [
        Row("in", f"{taken:,} ticks ({generator['rate']:,.0f}/s)", holds=taken > 0),
        Row("out", f"{arrived:,} ticks"),
        none_of("lost", max(0, taken - arrived)),
        none_of("early", consumed["early"]),
        Row("repeated", f"{consumed['consumed'] - arrived:,}"),
        late(consumed["lateness_ms"]),
        none_of("refused", generated["failed"]),
    ]
    if generated["unknown"]:
        rows.append(Row("answer lost", f"{generated['unknown']:,}"))
    return Verdict(rows)
