"""AMEND: cancel, reschedule, release, redrive, delete, erase — each with a definite answer."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model import lifecycle
from penstock.model.errors import PenstockError
from penstock.model.outcome import Amended, Amendment
from penstock.stores.redis.messages.records import Held, pack_id
from penstock.stores.redis.messages.swap import Swap, change, load
from penstock.stores.redis.session import Session


async def amend(session: Session, amendments: Sequence[Amendment], now: int) -> list[Amended]:
    """An answer each, in order; an id again in one batch comes after the first."""
    ids = [amendment.id for amendment in amendments]

    def step(i: int, held: Held | None) -> tuple[Amended, Swap | None]:
        loaded = None if held is None else load(pack_id(ids[i]), held)
        before = None if loaded is None else loaded.record
        answer, after, noted = lifecycle.amend(before, amendments[i], now)
        if loaded is None or after is before:
            return answer, None
        return answer, Swap(loaded, None if after is None else after.message, noted)

    async def find(indexes: list[int]) -> list[Held | None]:
        return await session.find([ids[i] for i in indexes])

    answers: list[Amended] = []
    for answer in await change(session, ids, find, step, now):
        if isinstance(answer, PenstockError):
            raise answer
        answers.append(answer)
    return answers
