"""Any number of messages in: the next batch is checked while the previous one is stored."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import TypeAlias

from penstock.flow.intake import Intake, Outcome
from penstock.model.draft import Draft
from penstock.model.errors import PenstockError
from penstock.sdk.asked import MessageLike, drafted
from penstock.sdk.here import local_draft

SIZE = 1_000
"""Messages of a batch."""
BATCHES = 2
"""Batches in flight: one is checked and encoded here, one is stored."""

_Batch: TypeAlias = list[Draft | PenstockError]
_Sent: TypeAlias = tuple[_Batch, "asyncio.Task[list[Outcome]]"]


async def schedule_batches(
    intake: Intake, messages: Iterable[MessageLike], size: int = SIZE
) -> AsyncIterator[list[Outcome]]:
    """Yield outcomes batch by batch, in order. When one fails, the next may be stored already."""
    under_way: deque[_Sent] = deque()
    following = iter(messages)
    try:
        while batch := [drafted(item, local_draft) for item in islice(following, size)]:
            drafts = [item for item in batch if isinstance(item, Draft)]
            given = {draft.id for draft in drafts} - {None}
            while under_way and (len(under_way) >= BATCHES or _has_any(under_way, given)):
                yield await _outcomes(under_way.popleft())
            under_way.append((batch, asyncio.ensure_future(intake.schedule(drafts))))
            await asyncio.sleep(0)  # let it reach the store before the next one is checked
        while under_way:
            yield await _outcomes(under_way.popleft())
    finally:
        # A batch in flight completes even if the caller leaves; one error was raised.
        await asyncio.gather(*(task for _, task in under_way), return_exceptions=True)


def _has_any(under_way: Iterable[_Sent], given: set[str | None]) -> bool:
    """True if an id is in flight: the same id again must come after, in the caller's order."""
    return bool(given) and any(
        isinstance(item, Draft) and item.id in given for batch, _ in under_way for item in batch
    )


async def _outcomes(sent: _Sent) -> list[Outcome]:
    batch, task = sent
    kept = await task
    if len(kept) == len(batch):
        return kept
    outcomes = iter(kept)
    return [next(outcomes) if isinstance(item, Draft) else item for item in batch]
