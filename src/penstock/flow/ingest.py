"""INGEST: schedule by publishing. A broker's records become messages; none is lost on the way.

A record is done once the store has all its messages and the dead letter has those that cannot
become messages: of a batch only the bad ones, of an unreadable record all of it. Without a dead
letter, or if the dead letter refuses, the store keeps it as a dead message of the source's route.
While the store or the dead letter is unavailable the source waits where it is: nothing is read
ahead and memory stays flat. No record stops the reading of those behind it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import groupby
from typing import Protocol

import msgspec

from penstock.flow.deliver import blame, send_part
from penstock.flow.formats import Alone, Read
from penstock.flow.intake import Intake, Outcome
from penstock.flow.observe import Observer
from penstock.model.backoff import Backoff
from penstock.model.draft import OCTETS, Draft, is_content_type, is_id, is_key
from penstock.model.envelope import CONTENT_TYPE
from penstock.model.errors import (
    Malformed,
    NotStored,
    PenstockError,
    SourceUnavailable,
    StoreUnavailable,
)
from penstock.model.headers import carried
from penstock.model.isolation import isolate
from penstock.model.message import DEFAULT_ROUTE, Message, NewMessage
from penstock.model.outcome import Dead, Retry
from penstock.model.trace import TRACEPARENT, give_trace
from penstock.ports.sink import Sink
from penstock.ports.source import Record, Source
from penstock.time.chance import given_or_fresh
from penstock.time.clock import Clock

log = logging.getLogger("penstock.ingest")

BATCH = 500
"""Records read at once at most."""
DRAFTS = 2_000
"""Messages handed to the store at once, about: one record may hold a thousand."""
MAX_SHOWN = 10_000
AWAY = Backoff(200, 5_000)
"""Backoff while the broker, the store or the dead letter is unavailable."""
STORE_TRIES = 5
"""Unexpected failures to put a message until the message is taken to be at fault."""
LETTER_TRIES = 20
"""Attempts to send a dead letter until it is stored instead, about a minute."""
MAX_REASON = 500
REASON, SOURCE, RECORD = "penstock-error", "penstock-source", "penstock-record"
"""Headers of a dead letter: why, from which source, and where it stood there."""
PLACE = "penstock-item"
"""Header of a dead letter that was one message of many in its record: its place, from 0."""
MAX_LETTER_ID = 195


@dataclass(frozen=True, slots=True)
class _Poison:
    """Input that cannot be stored as a message, and why: a whole record, or one message of it."""

    record: int
    place: int | None
    why: str


_UNKNOWN = StoreUnavailable("not answered yet")


class Ingest:
    """Reads one source into the store until it is cancelled."""

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
        records: Sequence[Record] = ()
        while True:
            try:
                records = records or await self._source.read(self._batch)
                if records:
                    await self._take(records)
                    await self._source.done(records)
                records, failures = (), 0
            except Exception as exc:  # noqa: BLE001 - no record may end the worker
                failures += 1
                if isinstance(exc, SourceUnavailable):
                    records = ()  # the broker redelivers them
                if failures == 1:
                    self._tell_failure(exc)
                await self._pause(failures)

    def _tell_failure(self, exc: Exception) -> None:
        if isinstance(exc, PenstockError):
            log.warning("source %s failed, it is tried again: %s", self._name, exc)
        else:
            # A fault of ours or of a driver: the source waits, and the worker goes on.
            log.error("source %s failed and is tried again", self._name, exc_info=exc)

    async def _take(self, records: Sequence[Record]) -> None:
        """Return once everything in these records is stored or in the dead letter."""
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
        """Decode a record: a draft or error per message, or one error if it cannot be read."""
        try:
            found = self._read(record.value, record.origin, now)
        except PenstockError as exc:
            return exc
        except Exception as exc:
            # A record that a format fails on unexpectedly must not stop those behind it.
            log.exception("source %s: a record could not be read and is rejected", self._name)
            return Malformed(f"cannot be read: {type(exc).__name__}: {exc}")
        for draft in found:
            if isinstance(draft, Draft):
                give_trace(draft, record.headers.get(TRACEPARENT))
                if draft.route == DEFAULT_ROUTE:
                    draft.route = self._route
        return found

    async def _schedule(self, drafts: Sequence[Draft], held: Sequence[Record]) -> Sequence[Outcome]:
        """Schedule the drafts; return one outcome each once the store has answered all."""
        outcomes: list[Outcome] = [_UNKNOWN] * len(drafts)
        left = list(range(len(drafts)))
        tries = unexpected = 0
        while left:
            try:
                answers = await self._intake.schedule([drafts[place] for place in left])
            except StoreUnavailable as exc:
                answers = [exc] * len(left)
            tries += 1
            unexpected += any(isinstance(answer, NotStored) for answer in answers)
            again: list[int] = []
            for place, answer in zip(left, answers, strict=True):
                outcomes[place] = answer
                if _is_away(answer, unexpected):
                    again.append(place)
            left = again
            if left:
                if tries == 1:
                    failure = outcomes[left[0]]
                    log.warning(
                        "source %s: the store does not answer, the records wait until it does: %s",
                        self._name,
                        failure,
                    )
                await self._pause(tries)
                await self._source.hold(held)
        return outcomes

    async def _bury(self, poison: Sequence[_Poison], held: Sequence[Record]) -> None:
        """Poison goes to the dead letter or into the store, and only then is it done."""
        self._observer.count("rejected", self._route, len(poison))
        letters: list[Message] = []
        in_order = sorted(poison, key=lambda one: (one.record, one.place or 0))
        for number, group in groupby(in_order, key=lambda one: one.record):
            letters += self._letters(held[number], list(group))
        for letter in letters:
            headers = letter.headers or {}
            log.warning(
                "source %s: record %s%s rejected: %s; it %s",
                self._name,
                headers.get(RECORD, "?"),
                f" item {headers[PLACE]}" if PLACE in headers else "",
                headers.get(REASON, "?"),
                "goes to the dead letter"
                if self._dead_letter is not None
                else f"is kept as the dead message {letter.id}",
            )
        for tries in range(1, LETTER_TRIES + 1):
            if self._dead_letter is None or not letters:
                break
            letters = await self._send(self._dead_letter, letters, held)
            if letters:
                await self._pause(tries)
                await self._source.hold(held)
        if letters:
            await self._keep(letters, held)

    async def _send(
        self, sink: Sink, letters: Sequence[Message], held: Sequence[Record]
    ) -> list[Message]:
        """Send the letters; return those to send again. Those refused for good go to the store."""
        again: list[Message] = []
        refused: list[Message] = []
        for start in range(0, len(letters), sink.max_batch):
            batch = letters[start : start + sink.max_batch]
            outcomes = await isolate(batch, partial(send_part, sink), partial(blame, sink))
            for letter, outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, Retry):
                    log.warning(
                        "source %s: its dead letter does not answer, a record is sent again: %s",
                        self._name,
                        outcome.error,
                    )
                    again.append(msgspec.structs.replace(letter, attempt=letter.attempt + 1))
                elif isinstance(outcome, Dead):
                    log.warning(
                        "source %s: its dead letter refused a record, kept as a dead message: %s",
                        self._name,
                        outcome.error,
                    )
                    refused.append(letter)
        if refused:
            await self._keep(refused, held)
        return again

    async def _keep(self, letters: Sequence[Message], held: Sequence[Record]) -> None:
        """Store the letters as dead messages of the source's route; return when it is done."""
        left = [_dead(letter) for letter in letters]
        tries = unexpected = 0
        while left:
            try:
                outcomes = await self._intake.keep_dead(left)
            except StoreUnavailable as exc:
                outcomes = [exc] * len(left)
            tries += 1
            unexpected += any(isinstance(outcome, NotStored) for outcome in outcomes)
            left = [
                message if _is_away(outcome, unexpected) else self._bare(message, outcome)
                for message, outcome in zip(left, outcomes, strict=True)
                if isinstance(outcome, PenstockError)
            ]
            if left:
                if tries == 1:
                    failure = next(one for one in outcomes if isinstance(one, PenstockError))
                    log.warning(
                        "source %s: a rejected record cannot be stored, it is tried again: %s",
                        self._name,
                        failure,
                    )
                await self._pause(tries)
                await self._source.hold(held)

    def _bare(self, message: NewMessage, refusal: PenstockError) -> NewMessage:
        """The message without any field that a store might refuse; the log has its beginning."""
        shown = message.payload[:MAX_SHOWN]
        log.error("source %s: %s cannot be kept: %s: %r", self._name, message.id, refusal, shown)
        return NewMessage(
            id=message.id,
            route=message.route,
            key=message.id,
            payload=b"",
            due=message.due,
            content_type=OCTETS,
            dead=f"{message.dead} (the record itself cannot be stored: {refusal.message})",
        )

    def _letters(self, record: Record, poison: Sequence[_Poison]) -> list[Message]:
        """The record whole, or of a batch each bad one with its place in it."""
        origin = (
            record.origin or f"{self._name}:{self._clock.now()}:{self._chance.getrandbits(64):016x}"
        )
        places = [one.place for one in poison if one.place is not None]
        apart = self._taken_apart(record, places)
        if apart is None:
            return [self._letter(record, origin, record.value, poison[0].why)]
        return [
            self._letter(record, origin, value, one.why, one.place)
            for one, value in zip(poison, apart, strict=True)
        ]

    def _taken_apart(self, record: Record, places: Sequence[int]) -> Sequence[bytes] | None:
        """The messages at these places of the record; None: it is one, or cannot be taken apart."""
        if not places or self._alone is None:
            return None
        try:
            return self._alone(record.value, places)
        except Exception:
            log.exception(
                "source %s: a rejected batch could not be split, it is kept whole", self._name
            )
            return None

    def _letter(
        self, record: Record, origin: str, value: bytes, why: str, place: int | None = None
    ) -> Message:
        own = dict(record.headers)
        content_type = next(
            (own.pop(name) for name in record.headers if _names_a_type(name, own[name])), OCTETS
        )
        headers = {
            **carried(own),
            REASON: shown_in_header(why, MAX_REASON),
            SOURCE: self._name,
            RECORD: shown_in_header(origin, MAX_REASON),
        }
        name = origin
        if place is not None:
            name = f"{origin}:{place}"
            headers[PLACE] = str(place)
        letter_id = f"dead:{name[-MAX_LETTER_ID:]}"  # the end distinguishes records and items
        if not is_id(letter_id):
            letter_id = f"dead:{sha256(name.encode(errors='replace')).hexdigest()}"
        return Message(
            id=letter_id,
            route=self._route,
            key=next((text for text in (record.key, origin) if text and is_key(text)), letter_id),
            payload=value,
            content_type=content_type,
            headers=headers,
            due=self._clock.now(),
            attempt=1,
        )

    async def _pause(self, failures: int) -> None:
        wait = AWAY.wait(failures, self._chance)
        await self._clock.sleep_until(self._clock.now() + wait)


def _is_away(outcome: Outcome, unexpected: int) -> bool:
    """True if the store is at fault rather than the message, after so many unexpected failures."""
    if isinstance(outcome, NotStored):
        return unexpected < STORE_TRIES
    return isinstance(outcome, StoreUnavailable)


def _dead(letter: Message) -> NewMessage:
    return NewMessage(
        id=letter.id,
        route=letter.route,
        key=letter.key,
        payload=letter.payload,
        due=letter.due,
        content_type=letter.content_type,
        headers=letter.headers,
        dead=(letter.headers or {}).get(REASON, "rejected"),
    )


def _names_a_type(name: str, value: str) -> bool:
    return name.lower() == CONTENT_TYPE and is_content_type(value)


def shown_in_header(text: str, most: int) -> str:
    """The text on one line, in characters that every sink accepts."""
    cut = " ".join(text.split())[:most]
    return cut if cut.isprintable() else repr(cut)


class Runs(Protocol):
    async def run(self) -> None: ...


async def run_all(ingests: Sequence[Runs]) -> None:
    """Every source of a process, until cancelled."""
    async with asyncio.TaskGroup() as group:
        for ingest in ingests:
            group.create_task(ingest.run())
