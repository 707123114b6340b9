"""Messages to bench with: 100-byte payloads, an hour ahead unless told otherwise."""

from __future__ import annotations

import random
import time
from random import Random

from penstock.model.draft import Draft
from penstock.model.identity import IdMaker
from penstock.model.message import NewMessage
from penstock.sdk.asked import draft

PAYLOAD = {"user": "user-000042", "text": "x" * 72}
HOUR = 3_600_000


def drafts(number: int, *, delay: float = 3600.0, route: str = "default") -> list[Draft]:
    return [draft(PAYLOAD, delay=delay, route=route) for _ in range(number)]


def messages(
    number: int, *, ahead: int = HOUR, spread: int = 0, route: str = "default"
) -> list[NewMessage]:
    """Validated messages with growing ids; `spread` scatters their due times."""
    now = time.time_ns() // 1_000_000
    ids = IdMaker(Random())
    chance = random.Random(1)
    body = bytes(drafts(1)[0].payload)  # type: ignore[arg-type] # always set by draft()
    made = []
    for i in range(number):
        name = ids.make(now)
        due = now + ahead + (chance.randrange(spread) if spread else i // 100)
        made.append(NewMessage(id=name, route=route, key=name, payload=body, due=due))
    return made
