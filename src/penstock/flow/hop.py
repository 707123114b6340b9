"""HOP: with an intake topic, ids reach the near future through a broker.

The process that accepts a message stores it and publishes its id; a worker that reads the topic
admits it. Nothing depends on the broker: an id that cannot be published is admitted at once, and an
id lost on the way is found by the store's own sweep.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Sequence
from functools import partial

import msgspec

from penstock.flow.deliver import blame, send_part
from penstock.flow.ingest import AWAY, BATCH
from penstock.model.errors import (
    PenstockError,
    PutRefused,
    SourceUnavailable,
    StoreUnavailable,
)
from penstock.model.isolation import isolate
from penstock.model.message import Message, NewMessage
from penstock.model.outcome import Delivered, Receipt
from penstock.model.state import State
from penstock.ports.sink import Sink
from penstock.ports.source import Record, Source
from penstock.ports.store import AdmittingStore
from penstock.time.chance import given_or_fresh
from penstock.time.clock import Clock

log = logging.getLogger("penstock.hop")


class Announced(msgspec.Struct, frozen=True):
    """The published record: the store has a message of this id, not yet admitted."""

    id: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Announced).decode


class Announcer:
    """Stores messages and publishes their ids; durable when it returns, broker or not."""

    def __init__(self, store: AdmittingStore, sink: Sink) -> None:
        self._store = store
        self._sink = sink

    async def put(self, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        refused: PutRefused | None = None
        try:
            receipts = await self._store.put_unadmitted(messages, now)
        except PutRefused as exc:
            refused, receipts = exc, [one for one in exc.outcomes if isinstance(one, Receipt)]
        waiting = [receipt for receipt in receipts if receipt.state is State.SCHEDULED]
        unsent = await self._publish(waiting)
        if unsent:
            log.warning(
                "%d ids are written to Redis directly: %s did not take them",
                len(unsent),
                self._sink.name,
            )
            await self._admit(unsent, now)
        if refused is not None:
            raise refused
        return receipts

    async def _publish(self, receipts: Sequence[Receipt]) -> list[str]:
        """Publish the ids and return those that could not be published."""
        unsent: list[str] = []
        for start in range(0, len(receipts), self._sink.max_batch):
            letters = [_letter(one) for one in receipts[start : start + self._sink.max_batch]]
            outcomes = await isolate(
                letters, partial(send_part, self._sink), partial(blame, self._sink)
            )
            unsent += [
                letter.id
                for letter, outcome in zip(letters, outcomes, strict=True)
                if not isinstance(outcome, Delivered)
            ]
        return unsent

    async def _admit(self, ids: Sequence[str], now: int) -> None:
        try:
            await self._store.admit(ids, now)
        except StoreUnavailable as exc:  # they are stored, and the sweep admits them
            log.warning("%d ids are not in Redis yet, the sweep will write them: %s", len(ids), exc)


class Admitter:
    """Takes ids from the topic into the near future, until it is cancelled."""

    def __init__(
        self,
        store: AdmittingStore,
        source: Source,
        clock: Clock,
        *,
        chance: random.Random | None = None,
    ) -> None:
        self._store = store
        self._source = source
        self._clock = clock
        self._chance = given_or_fresh(chance)

    async def run(self) -> None:
        failures = 0
        held: Sequence[Record] = ()
        while True:
            try:
                if not held:
                    held = await self._source.read(BATCH)
                if held:
                    await self._store.admit(list(_ids(held)), self._clock.now())
                    await self._source.done(held)
                    held = ()
                failures = 0
            except Exception as exc:  # no record may end the worker
                failures += 1
                if failures == 1:
                    is_known = isinstance(exc, PenstockError)
                    log.warning(
                        "ids from the intake topic cannot be taken, they are tried again: %s",
                        exc,
                        exc_info=None if is_known else exc,
                    )
                if isinstance(exc, SourceUnavailable):
                    held = ()  # the broker redelivers them
                else:
                    await self._source.hold(held)
                await self._clock.sleep_until(self._clock.now() + AWAY.wait(failures, self._chance))


def _ids(records: Iterable[Record]) -> Iterable[str]:
    for record in records:
        try:
            yield _decode(record.value).id
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
            log.warning(
                "record %s of the intake topic is not Penstock's and is skipped", record.origin
            )


def _letter(receipt: Receipt) -> Message:
    return Message(
        id=receipt.id,
        route="intake",
        key=receipt.id,
        payload=_encode(Announced(receipt.id)),
        due=receipt.due,
        attempt=1,
    )
