"""PUT: keep what is new, and let `on_conflict` decide about what is known."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.errors import PenstockError, PutRefused, StoreUnavailable, TooLarge
from penstock.model.fit import check_whole_size, stored_size
from penstock.model.message import Message, NewMessage
from penstock.model.outcome import Receipt
from penstock.model.state import PURGEABLE, State
from penstock.stores.dynamodb.changes import replaced, wins
from penstock.stores.dynamodb.items import (
    MAX_CONTENT,
    Item,
    expiry,
    is_forgotten,
    new_item,
    next_item,
    to_message,
    to_record,
)
from penstock.stores.dynamodb.session import Held, Session
from penstock.stores.dynamodb.table import Change

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
    until = expiry(now, session.retention)
    items = [new_item(message, now, session.shape, until) for message in messages]
    inserted = await session.table.insert(items)
    new = [answer is True for answer in inserted]
    receipts: list[Receipt | PenstockError] = [
        answer if isinstance(answer, PenstockError) else Receipt(m.id, m.state, m.due)
        for m, answer in zip(messages, inserted, strict=True)
    ]
    kept += [to_message(i) for i, m, n in zip(items, messages, new, strict=True)
             if n and m.state is State.SCHEDULED]  # fmt: skip
    ended = [m.id for m, n in zip(messages, new, strict=True) if n and m.state in PURGEABLE]
    await session.retire(ended, now)
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
    steps: list[tuple[int, Held, Message, Change]] = []
    for place in known:
        message, held = messages[place], found.get(messages[place].id)
        if held is None:  # deleted just now: it is new after all
            (answer,) = await session.table.insert([items[place]])
            again += [] if answer is True else [place]
            kept += [to_message(items[place])] if message.state is State.SCHEDULED else []
        elif not session.exact and is_forgotten(held.record, now):
            change = Change.between(held.item, {**items[place], "n": _next_revision(held)})
            steps.append((place, held, to_message(items[place]), change))
        elif wins(message, held.message):
            after = replaced(held.record, message, now)
            change = Change.between(held.item, next_item(held.item, after, session.shape))
            steps.append((place, held, after.message, change))
        else:
            receipts[place] = Receipt(
                message.id, held.message.state, held.message.due, duplicate=True
            )
    made = await session.table.change([change for *_, change in steps]) if steps else []
    moved: list[Message] = []
    for (place, held, after_message, _), done in zip(steps, made, strict=True):
        if not done:
            again.append(place)
            continue
        is_duplicate = after_message.version > 1
        receipts[place] = Receipt(
            after_message.id, after_message.state, after_message.due, duplicate=is_duplicate
        )
        if held.message.state is State.SCHEDULED:
            moved.append(held.message)
        if after_message.state is State.SCHEDULED:
            kept.append(after_message)
    if moved:
        await session.drop(moved)
    return again


def _next_revision(held: Held) -> dict[str, str]:
    return {"N": str(to_record(held.item).message.ref + 1)}
