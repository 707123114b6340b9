"""A client's stream into the store: put in groups as it arrives, in constant memory.

Reading and storing run concurrently. Messages read and not stored are bounded; when the store is
slower than the client, nothing more is read, and HTTP/2 slows the client down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias

from google.protobuf.message import DecodeError

from penstock.api.grpc.errors import refused, unreadable
from penstock.api.grpc.shapes import draft_of
from penstock.flow.intake import Outcome
from penstock.model.draft import Draft
from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.outcome import Receipt
from penstock.model.trace import give_trace
from penstock.v1 import scheduler_pb2 as pb

CHUNK = 500
"""Messages a store call gets."""
CHUNK_BYTES = 4 << 20
"""… or fewer, when they are large."""
HELD = 2
"""Chunks in memory at most: one being stored and one being read."""
FULL, FULL_BYTES = CHUNK * (HELD - 1), CHUNK_BYTES * (HELD - 1)
"""Messages and bytes read ahead of the chunk that is being stored, at most."""
LINGER = 0.005
"""Seconds a chunk waits for more, repeatedly while many arrive: a fuller chunk costs the store half
as much per message, and a stream's client awaits no single message …
"""
MANY = 8
"""… this many at least: where few follow, they are not waited for …"""
LINGERS = 10
"""… and at most so many times: a message is durable soon after it arrived, however many follow."""
MAX_REFUSALS = 1_000
"""Refused messages that are reported one by one; the rest are only counted."""


Put: TypeAlias = Callable[[list[Draft]], Awaitable[Sequence[Outcome]]]
"""Puts a chunk: one outcome each, in order."""


class Inflow:
    """The messages of one stream, and their outcomes."""

    def __init__(self, put: Put, trace: str | None = None) -> None:
        """`trace`: the trace of messages without one of their own."""
        self._schedule = put
        self._trace = trace
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._ended = False
        self._some = asyncio.Event()
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self.summary = pb.ScheduleStreamResponse()

    @property
    def full(self) -> bool:
        return len(self._waiting) >= FULL or self._bytes >= FULL_BYTES

    def add(self, body: bytes) -> bool:
        """Take one message; False: wait for `room` before the next."""
        waiting = self._waiting
        waiting.append(body)
        self._bytes += len(body)
        if len(waiting) == 1:
            self._some.set()
        if len(waiting) < FULL and self._bytes < FULL_BYTES:  # `full` would be a call for each
            return True
        self._filled.set()
        return False

    async def room(self) -> None:
        """Wait until more may be added."""
        while self.full:
            self._room.clear()
            await self._room.wait()

    def end(self) -> None:
        """Note that the stream has ended."""
        self._ended = True
        self._some.set()
        self._filled.set()

    async def store(self) -> None:
        """Put the added messages until the end; StoreUnavailable carries how many were stored."""
        while await self._chunk():
            bodies, self._waiting, self._bytes = self._waiting, [], 0
            if not self._ended:
                self._some.clear()
            self._room.set()
            await self._put(bodies)

    async def _chunk(self) -> bool:
        """Wait until there is enough for a store call; False: the stream has ended."""
        await self._some.wait()
        for _ in range(LINGERS):
            if self._ended or self.full:
                break
            seen = len(self._waiting)
            self._filled.clear()
            timer = asyncio.get_running_loop().call_later(LINGER, self._filled.set)
            await self._filled.wait()
            timer.cancel()
            if len(self._waiting) < seen + MANY:
                break
        return bool(self._waiting)

    async def _put(self, bodies: Sequence[bytes]) -> None:
        items = [_read(body) for body in bodies]
        drafts = [item for _, item in items if isinstance(item, Draft)]
        if self._trace is not None:
            for draft in drafts:
                give_trace(draft, self._trace)
        try:
            outcomes = iter(await self._schedule(drafts) if drafts else ())
        except StoreUnavailable as exc:
            so_far = f"; {self.summary.accepted} messages of the stream are durable"
            raise StoreUnavailable(exc.message + so_far, retry_after=exc.retry_after) from exc
        self._sum_up(items, outcomes)

    def _sum_up(
        self, items: Sequence[tuple[str, Draft | PenstockError]], outcomes: Iterator[Outcome]
    ) -> None:
        accepted = duplicates = 0
        for place, (given_id, item) in enumerate(items, self.summary.received):
            outcome = item if isinstance(item, PenstockError) else next(outcomes)
            if isinstance(outcome, Receipt):
                accepted += 1
                duplicates += outcome.duplicate
            else:
                self._refuse(outcome, place, given_id)
        self.summary.received += len(items)
        self.summary.accepted += accepted
        self.summary.duplicates += duplicates

    def _refuse(self, exc: PenstockError, place: int, given_id: str) -> None:
        if self.summary.refused < MAX_REFUSALS:
            self.summary.refusals.append(refused(exc, place, given_id))
        self.summary.refused += 1


def _read(body: bytes) -> tuple[str, Draft | PenstockError]:
    """Decode a message: its id as given, and its draft or its error."""
    try:
        asked = pb.ScheduleRequest.FromString(body)
    except DecodeError:
        return "", unreadable()
    try:
        return asked.id, draft_of(asked)
    except PenstockError as exc:
        return asked.id, exc
