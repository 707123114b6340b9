"""INGEST: schedule by publishing. A broker's records become messages; none is lost on the way.

A record is done only when the store has all its messages and the dead letter has those that cannot
be kept: of a batch only the bad ones, of a record that cannot be read all of it. While either is
away the source is held where it is: nothing is read ahead and memory stays flat.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import msgspec

from penstock.flow.formats import Alone, Read
from penstock.flow.intake import Intake
from penstock.flow.observe import Observer
from penstock.model.chance import given_or_fresh
from penstock.model.clock import Clock
from penstock.model.draft import OCTETS, Draft
from penstock.model.errors import Malformed, PenstockError, SourceUnavailable, StoreUnavailable
from penstock.model.message import DEFAULT_ROUTE, Message
from penstock.model.outcome import Dead, Retry
from penstock.model.route import Backoff
from penstock.model.trace import TRACEPARENT, give_trace
from penstock.ports.sink import Sink
from penstock.ports.source import Record, Source

log = logging.getLogger("penstock.ingest")

BATCH = 500
"""Records read at once at most."""
DRAFTS = 2_000
"""Messages handed to the store at once, about: one record may hold a thousand."""
MAX_SHOWN = 10_000
AWAY = Backoff(200, 5_000)
"""Waits while the broker, the store or the dead letter is away."""
MAX_REASON = 500
REASON, SOURCE, RECORD = "penstock-error", "penstock-source", "penstock-record"
"""Headers of a dead letter: why, from which source, and where it stood there."""
PLACE = "penstock-item"
"""Header of a dead letter that was one message of many in its record: its place, from 0."""
MAX_LETTER_ID = 195


@dataclass(frozen=True, slots=True)
class _Poison:
    """What cannot be kept, and why: a whole record, or the message at that place in it."""

    record: int
    place: int | None
    why: str


class Ingest:
    """One source's way into the store, until it is cancelled."""

    def __init__(
        self,
        name: str,
        source: Source,
        read: Read,
        intake: Intake,
        clock: Clock,
        observer: Observer,
        *,
        route: str = DEFAULT_ROUTE,
        dead_letter: Sink | None = None,
        alone: Alone | None = None,
        batch: int = BATCH,
        chance: random.Random | None = None,
    ) -> None:
        """`alone` takes apart records that hold many messages; without it they are one each."""
        self._name = name
        self._source = source
        self._read = read
        self._intake = intake
        self._clock = clock
        self._observer = observer
        self._route = route
        self._dead_letter = dead_letter
        self._alone = alone
        self._batch = batch
        self._chance = given_or_fresh(chance)

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                records = await self._source.read(self._batch)
                if records:
                    await self._take(records)
                    await self._source.done(records)
                failures = 0
            except SourceUnavailable as exc:
                failures += 1
                if failures == 1:
                    log.warning("source %s: %s", self._name, exc)
                await self._pause(failures)

    async def _take(self, records: Sequence[Record]) -> None:
        """Return when everything these records say is kept somewhere."""
        poison: list[_Poison] = []
        drafts: list[Draft] = []
        owners: list[tuple[int, int]] = []
        now = self._clock.now()
        unreadable = 0
        for number, record in enumerate(records):
            found = self._messages(record, now)
            if isinstance(found, PenstockError):
                unreadable += 1
                poison.append(_Poison(number, None, found.message))
                found = ()
            for place, one in enumerate(found):
                if isinstance(one, PenstockError):
                    poison.append(_Poison(number, place, one.message))
                else:
                    drafts.append(one)
                    owners.append((number, place))
            if len(drafts) >= DRAFTS or number == len(records) - 1:
                outcomes = await self._schedule(drafts, records)
                for owner, outcome in zip(owners, outcomes, strict=True):
                    if isinstance(outcome, PenstockError):
                        poison.append(_Poison(*owner, outcome.message))
                drafts, owners = [], []
        self._observer.count("ingested", self._route, len(records) - unreadable)
        if poison:
            await self._bury(poison, records)

    def _messages(
        self, record: Record, now: int
    ) -> Sequence[Draft | PenstockError] | PenstockError:
        """What the record holds, each in its place; an error when it cannot be read at all."""
        try:
            found = self._read(record.value, record.origin, now)
        except PenstockError as exc:
            return exc
        except Exception as exc:
            # A record that a format cannot even refuse must not stop all that come after it.
            log.exception("source %s: a record could not be read", self._name)
            return Malformed(f"cannot be read: {type(exc).__name__}: {exc}")
        for draft in found:
            if isinstance(draft, Draft):
                give_trace(draft, record.headers.get(TRACEPARENT))
                if draft.route == DEFAULT_ROUTE:
                    draft.route = self._route
        return found

    async def _schedule(self, drafts: Sequence[Draft], held: Sequence[Record]) -> Sequence[object]:
        tries = 0
        while True:
            try:
                return await self._intake.schedule(drafts)
            except StoreUnavailable as exc:
                tries += 1
                if tries == 1:
                    log.warning("source %s waits, the store is away: %s", self._name, exc)
                await self._pause(tries)
                await self._source.hold(held)

    async def _bury(self, poison: Sequence[_Poison], held: Sequence[Record]) -> None:
        """Poison goes to the dead letter, and only then is it done."""
        self._observer.count("rejected", self._route, len(poison))
        letters: list[Message] = []
        in_order = sorted(poison, key=lambda one: (one.record, one.place or 0))
        for number, group in groupby(in_order, key=lambda one: one.record):
            letters += self._letters(held[number], list(group))
        for letter in letters:
            headers = letter.headers or {}
            log.warning(
                "source %s: record %s%s rejected: %s",
                self._name,
                headers.get(RECORD, "?"),
                f" item {headers[PLACE]}" if PLACE in headers else "",
                headers.get(REASON, "?"),
            )
        sink = self._dead_letter
        tries = 0
        while letters and sink is not None:
            letters = await self._send(sink, letters)
            if letters:
                tries += 1
                await self._pause(tries)
                await self._source.hold(held)

    async def _send(self, sink: Sink, letters: list[Message]) -> list[Message]:
        """Those that must be sent again."""
        again: list[Message] = []
        for start in range(0, len(letters), sink.max_batch):
            batch = letters[start : start + sink.max_batch]
            try:
                outcomes = await sink.send(batch)
            except Exception as exc:
                log.exception("sink %s failed", sink.name)
                outcomes = [Retry(f"{type(exc).__name__}: {exc}")] * len(batch)
            for letter, outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, Retry):
                    log.warning("source %s: dead letter waits: %s", self._name, outcome.error)
                    again.append(msgspec.structs.replace(letter, attempt=letter.attempt + 1))
                elif isinstance(outcome, Dead):
                    # Nowhere to keep it: say all there is to say, and do not block the rest.
                    said = letter.payload[:MAX_SHOWN]
                    log.error(
                        "source %s: dead letter refused: %s: %r", self._name, outcome.error, said
                    )
        return again

    def _letters(self, record: Record, poison: Sequence[_Poison]) -> list[Message]:
        """The record whole, or of a batch each bad one with its place in it."""
        origin = (
            record.origin or f"{self._name}:{self._clock.now()}:{self._chance.getrandbits(64):016x}"
        )
        places = [one.place for one in poison if one.place is not None]
        apart = self._alone(record.value, places) if places and self._alone is not None else None
        if apart is None:
            return [self._letter(record, origin, record.value, poison[0].why)]
        return [
            self._letter(record, origin, value, one.why, one.place)
            for one, value in zip(poison, apart, strict=True)
        ]

    def _letter(
        self, record: Record, origin: str, value: bytes, why: str, place: int | None = None
    ) -> Message:
        headers = {
            **record.headers,
            REASON: " ".join(why.split())[:MAX_REASON],
            SOURCE: self._name,
            RECORD: origin,
        }
        name = origin
        if place is not None:
            name = f"{origin}:{place}"
            headers[PLACE] = str(place)
        return Message(
            id=f"dead:{name[-MAX_LETTER_ID:]}",  # the end tells records, and their items, apart
            route=self._route,
            key=record.key or origin,
            payload=value,
            content_type=record.headers.get("content-type", OCTETS),
            headers=headers,
            due=self._clock.now(),
            attempt=1,
        )

    async def _pause(self, failures: int) -> None:
        wait = AWAY.wait(failures, self._chance)
        await self._clock.sleep_until(self._clock.now() + wait)


class Runs(Protocol):
    async def run(self) -> None: ...


async def run_all(ingests: Sequence[Runs]) -> None:
    """Every source of a process, until cancelled."""
    async with asyncio.TaskGroup() as group:
        for ingest in ingests:
            group.create_task(ingest.run())
