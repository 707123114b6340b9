"""Any number of messages on their way in: the next batch is checked while the last is kept."""

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
"""On their way at once: one that is checked and packed here, one that the store keeps."""

_Batch: TypeAlias = list[Draft | PenstockError]
_Sent: TypeAlias = tuple[_Batch, "asyncio.Task[list[Outcome]]"]


async def schedule_batches(
    intake: Intake, messages: Iterable[MessageLike], size: int = SIZE
) -> AsyncIterator[list[Outcome]]:
    """Outcomes batch by batch, in order. When one fails, the next may have been kept already."""
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
        # What has begun comes to its end, whatever becomes of the caller; one error was told.
        await asyncio.gather(*(task for _, task in under_way), return_exceptions=True)


def _has_any(under_way: Iterable[_Sent], given: set[str | None]) -> bool:
    """Whether an id is in there: the same id again must come after, as the caller wrote them."""
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
