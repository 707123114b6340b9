"""A request to the simulated provider as one line: for people, or for machines."""

from __future__ import annotations

import msgspec

from penstock.contrib.sender.provider import Answered
from penstock.model.times import format_moment

BODY_SHOWN = 100
"""Characters of a body in a line for people."""


def as_text(answered: Answered) -> str:
    """17:05:12.345  200  order-42  attempt 1  +3 ms  /hook  {"order": 42}"""
    request = answered.request
    body = request.body[: BODY_SHOWN * 4].decode(errors="replace")
    cut = f"{body[:BODY_SHOWN]}…" if len(body) > BODY_SHOWN else body
    late = "" if answered.late is None else f"{answered.late:+d} ms"
    outcome = "" if answered.status == 200 else f"({answered.said})"
    parts = (
        format_moment(request.at)[11:-1],
        str(answered.status),
        request.id or "-",
        f"attempt {request.attempt}" if request.attempt else "",
        late,
        request.method if request.method != "POST" else "",
        request.path,
        outcome,
        cut,
    )
    return "  ".join(part for part in parts if part)


def as_json(answered: Answered) -> str:
    request = answered.request
    line = {
        "at": format_moment(request.at),
        "status": answered.status,
        "id": request.id or None,
        "attempt": request.attempt or None,
        "late_ms": answered.late,
        "method": request.method,
        "path": request.path,
        "body": request.body.decode(errors="replace"),
    }
    return msgspec.json.encode(line).decode()
