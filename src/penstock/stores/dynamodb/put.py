"""PUT: store new messages, and let `on_conflict` decide about known ids."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model import lifecycle
from penstock.model.errors import PenstockError, PutRefused, StoreUnavailable, TooLarge
from penstock.model.fit import check_whole_size, stored_size
from penstock.model.lifecycle import Step
from penstock.model.message import Message, NewMessage
from penstock.model.outcome import Receipt
from penstock.model.state import PURGEABLE, State
from penstock.stores.dynamodb.items import (
    MAX_CONTENT,
    Item,
    first_record,
    is_forgotten,
    to_item,
    to_message,
)
from penstock.stores.dynamodb.session import Loaded, Session

TRIES = 20
"""Most tries for a message that other processes change meanwhile."""


async def put(
    session: Session, messages: Sequence[NewMessage], now: int, *, admit: bool = True
) -> list[Receipt]:
    """Put messages: one receipt each. Without `admit` no id goes to Redis: `Session.bring` does
    that.

    Raises PutRefused if any of them cannot be stored as an item.
    """
    receipts: list[Receipt | PenstockError] = [_check_size(message) for message in messages]
    kept: list[Message] = []
    indexes = [index for index, known in enumerate(receipts) if isinstance(known, Receipt)]
    while indexes:  # an id's second put in the batch follows its first
        firsts: dict[str, int] = {}
        for index in indexes:
            firsts.setdefault(messages[index].id, index)
        now_placed = list(firsts.values())
        answers = await _put_distinct(session, [messages[p] for p in now_placed], now, kept)
        for index, receipt in zip(now_placed, answers, strict=True):
            receipts[index] = receipt
        done = set(now_placed)
        indexes = [index for index in indexes if index not in done]
    if admit:
        await session.bring(kept, now)
    answered = [receipt for receipt in receipts if isinstance(receipt, Receipt)]
    if len(answered) < len(receipts):
        raise PutRefused(receipts)
    return answered


def _check_size(message: NewMessage) -> Receipt | PenstockError:
    """The answer before the table's own: TooLarge is final."""
    try:
        check_whole_size(stored_size(message), MAX_CONTENT)
    except TooLarge as exc:
        return exc
    return Receipt(message.id, message.state, message.due)


async def _put_distinct(
    session: Session, messages: Sequence[NewMessage], now: int, kept: list[Message]
) -> list[Receipt | PenstockError]:
    await session.buckets.ensure((m.due for m in messages if m.ending is None), now)
    first = [first_record(message, now) for message in messages]
    items = [to_item(record, session.shape, session.retention) for record in first]
    inserted = await session.table.insert(items)
    receipts: list[Receipt | PenstockError] = [
        answer if isinstance(answer, PenstockError) else Receipt(m.id, m.state, m.due)
        for m, answer in zip(messages, inserted, strict=True)
    ]
    new = [r.message for r, answer in zip(first, inserted, strict=True) if answer is True]
    kept += [message for message in new if message.state is State.SCHEDULED]
    await session.retire([message.id for message in new if message.state in PURGEABLE], now)
    known = [index for index, answer in enumerate(inserted) if answer is False]
    for _ in range(TRIES):
        if not known:
            return receipts
        known = await _meet(session, messages, items, known, now, receipts, kept)
    raise StoreUnavailable(f"gave up after {TRIES} concurrent updates of this message; retry")


async def _meet(
    session: Session,
    messages: Sequence[NewMessage],
    items: Sequence[Item],
    known: Sequence[int],
    now: int,
    receipts: list[Receipt | PenstockError],
    kept: list[Message],
) -> list[int]:
    """Handle known ids: keep the first message, or replace it while it waits.

    The answer is the indexes of the messages changed concurrently.
    """
    found = await session.read([messages[index].id for index in known])
    again: list[int] = []
    steps: list[tuple[int, Loaded, Step[Receipt]]] = []
    for index in known:
        loaded = found.get(messages[index].id)
        if loaded is None:  # deleted meanwhile: it is new after all
            (answer,) = await session.table.insert([items[index]])
            if answer is not True:
                again.append(index)
            elif messages[index].state is State.SCHEDULED:
                kept.append(to_message(items[index]))
            continue
        is_new = not session.exact and is_forgotten(loaded.item, now)
        step = lifecycle.put(None if is_new else loaded.record, messages[index], now)
        if step.record is loaded.record:
            receipts[index] = step.answer
        else:
            steps.append((index, loaded, step))
    made = await session.write([(loaded, step) for _, loaded, step in steps], now)
    moved: list[Message] = []
    for (index, loaded, step), after in zip(steps, made, strict=True):
        if after is None:
            again.append(index)
            continue
        receipts[index] = step.answer
        if loaded.message.state is State.SCHEDULED:
            moved.append(loaded.message)
        if after.state is State.SCHEDULED:
            kept.append(after)
    if moved:
        await session.drop(moved)
    return again
