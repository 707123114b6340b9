"""PUT: keep what is new, and let `on_conflict` decide about what is known."""

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
from penstock.stores.dynamodb.session import Held, Session

TRIES = 20
"""Times a message is looked at again because others changed it meanwhile."""


async def put(
    session: Session, messages: Sequence[NewMessage], now: int, *, admit: bool = True
) -> list[Receipt]:
    """One receipt each. Without `admit` the ids do not go to Redis: `Session.bring` does that.

    PutRefused when any of them cannot be an item.
    """
    receipts: list[Receipt | PenstockError] = [_check_size(message) for message in messages]
    kept: list[Message] = []
    places = [place for place, known in enumerate(receipts) if isinstance(known, Receipt)]
    while places:  # a second time in the batch is a second put, after the first
        firsts: dict[str, int] = {}
        for place in places:
            firsts.setdefault(messages[place].id, place)
        now_placed = list(firsts.values())
        answers = await _put_distinct(session, [messages[p] for p in now_placed], now, kept)
        for place, receipt in zip(now_placed, answers, strict=True):
            receipts[place] = receipt
        done = set(now_placed)
        places = [place for place in places if place not in done]
    if admit:
        await session.bring(kept, now)
    answered = [receipt for receipt in receipts if isinstance(receipt, Receipt)]
    if len(answered) < len(receipts):
        raise PutRefused(receipts)
    return answered


def _check_size(message: NewMessage) -> Receipt | PenstockError:
    """What is answered for it, until the table has: TooLarge is the last word."""
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
    known = [place for place, answer in enumerate(inserted) if answer is False]
    for _ in range(TRIES):
        if not known:
            return receipts
        known = await _meet(session, messages, items, known, now, receipts, kept)
    raise StoreUnavailable("a message is changed by others again and again: try again")


async def _meet(
    session: Session,
    messages: Sequence[NewMessage],
    items: Sequence[Item],
    known: Sequence[int],
    now: int,
    receipts: list[Receipt | PenstockError],
    kept: list[Message],
) -> list[int]:
    """The ids are known: keep the first, or put the new one in its place while it waits.

    Returns the places of those that somebody changed meanwhile.
    """
    found = await session.read([messages[place].id for place in known])
    again: list[int] = []
    steps: list[tuple[int, Held, Step[Receipt]]] = []
    for place in known:
        held = found.get(messages[place].id)
        if held is None:  # deleted just now: it is new after all
            (answer,) = await session.table.insert([items[place]])
            if answer is not True:
                again.append(place)
            elif messages[place].state is State.SCHEDULED:
                kept.append(to_message(items[place]))
            continue
        is_new = not session.exact and is_forgotten(held.item, now)
        step = lifecycle.put(None if is_new else held.record, messages[place], now)
        if step.record is held.record:
            receipts[place] = step.answer
        else:
            steps.append((place, held, step))
    made = await session.write([(held, step) for _, held, step in steps], now)
    moved: list[Message] = []
    for (place, held, step), after in zip(steps, made, strict=True):
        if after is None:
            again.append(place)
            continue
        receipts[place] = step.answer
        if held.message.state is State.SCHEDULED:
            moved.append(held.message)
        if after.state is State.SCHEDULED:
            kept.append(after)
    if moved:
        await session.drop(moved)
    return again
