"""BACKUP: write everything a store still has to do as records, and restore such records.

A backup is taken while the store is in use: a message that changes during the backup is in it
either as it was before or as it was after. Settled messages, counters and waiting rooms are not in
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from penstock.flow.handover import BATCH, PARKED, as_new, pages, rules_of
from penstock.model.errors import ConfigError
from penstock.model.message import Message, NewMessage
from penstock.model.policy import Policy, Suppression
from penstock.model.query import Filter
from penstock.model.recurrence import RuleRow, aimed
from penstock.model.size import in_calls
from penstock.model.state import State
from penstock.ports.recurring import Swap
from penstock.ports.store import Store


class SavedMessage(msgspec.Struct, tag="message", tag_field="kind", frozen=True):
    message: NewMessage


class SavedRule(msgspec.Struct, tag="rule", tag_field="kind", frozen=True):
    row: RuleRow


class SavedPolicy(msgspec.Struct, tag="policy", tag_field="kind", frozen=True):
    id: str
    policy: Policy


class SavedSuppression(msgspec.Struct, tag="suppression", tag_field="kind", frozen=True):
    id: str
    suppression: Suppression


class SavedPause(msgspec.Struct, tag="paused", tag_field="kind", frozen=True):
    route: str


Saved: TypeAlias = SavedMessage | SavedRule | SavedPolicy | SavedSuppression | SavedPause


async def saved(store: Store) -> AsyncIterator[list[Saved]]:
    """Yield every record of the store, in the order in which a restore needs them."""
    begun = store.clock.now()
    yield [SavedPause(route) for route in sorted(await store.messages.paused())]
    if store.policies is not None:
        book = await store.policies.book()
        yield [SavedPolicy(name, policy) for name, policy in book.policies.items()]
        for name in book.suppressions:
            suppression = await store.policies.suppression(name)
            if suppression is not None:
                yield [SavedSuppression(name, suppression)]
    if store.recurring is not None:
        async for row in rules_of(store.recurring):
            yield [SavedRule(aimed(row) if row.wake == PARKED else row)]
    for state in (State.DEAD, State.LEASED, State.SCHEDULED, State.LEASED):
        async for page in pages(store.messages, Filter(state=state)):
            yield [SavedMessage(as_new(message)) for message in page]
    # A message that was leased or changed while its page was read is scheduled again behind it.
    async for page in pages(store.messages, Filter(state=State.SCHEDULED)):
        yield [SavedMessage(as_new(m)) for m in page if _may_have_moved(m, begun)]


def _may_have_moved(message: Message, begun: int) -> bool:
    return message.version > 1 or message.attempt > 0 or message.created >= begun


class Restored(msgspec.Struct):
    """What a restore did, by kind."""

    put: Counter[str] = msgspec.field(default_factory=Counter)
    known: Counter[str] = msgspec.field(default_factory=Counter)
    """Number of records by kind that the store had already; these stay unchanged."""


async def restore(store: Store, records: Iterable[Saved], put: Callable[[int], None]) -> Restored:
    """Put every record that the store lacks; harmless to repeat. `put` receives each number."""
    done = Restored()
    iterator = iter(records)
    while batch := list(islice(iterator, BATCH)):
        messages = [record.message for record in batch if isinstance(record, SavedMessage)]
        for record in batch:
            if not isinstance(record, SavedMessage):
                is_new = await _restore_one(store, record)
                (done.put if is_new else done.known)[kind_of(record)] += 1
        for part in in_calls(messages):
            receipts = await store.messages.put(part, store.clock.now())
            known = sum(receipt.duplicate for receipt in receipts)
            done.put["message"] += len(part) - known
            done.known["message"] += known
        put(len(batch))
    return done


async def _restore_one(store: Store, record: Saved) -> bool:
    """Restore one record; True if the store did not have it."""
    if isinstance(record, SavedPause):
        was = record.route in await store.messages.paused()
        await store.messages.pause(record.route, True)
        return not was
    if isinstance(record, SavedRule):
        if store.recurring is None:
            raise ConfigError(f"the store {store.name} keeps no recurring rules")
        row = replace(record.row, revision=1)
        return (await store.recurring.swap([Swap(row.id, 0, row)]))[0]
    if store.policies is None:
        raise ConfigError(f"the store {store.name} keeps no policies")
    book = await store.policies.book()
    if isinstance(record, SavedPolicy):
        if record.id in book.policies:
            return False
        await store.policies.put_policy(record.id, record.policy)
    elif isinstance(record, SavedSuppression):
        if record.id in book.suppressions:
            return False
        await store.policies.put_suppression(record.id, record.suppression)
    return True


def kind_of(record: Saved) -> str:
    """The kind of a record, as it is written in its line of the file."""
    return str(record.__struct_config__.tag)
