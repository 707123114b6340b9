"""A client's stream into the store: put in groups as it comes, in constant memory.

Reading and storing run beside each other. What was read and is not stored is bounded; when the
store is slower than the client, nothing more is read, and HTTP/2 holds the client back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from penstock.api.grpc.errors import refused, unreadable
from penstock.api.grpc.shapes import draft_of
from penstock.flow.intake import Intake
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
"""Chunks in memory at most: one that is stored and one that is read meanwhile."""
LINGER = 0.005
"""Seconds the first message of a chunk waits for others at most."""
MAX_REFUSALS = 1_000
"""Refused messages that are told one by one; the rest are only counted."""


class Inflow:
    """The messages of one stream, and what became of them."""

    def __init__(self, intake: Intake, trace: str | None = None) -> None:
        """`trace`: what messages without a trace of their own are part of."""
        self._intake = intake
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
        return len(self._waiting) >= CHUNK * (HELD - 1) or self._bytes >= CHUNK_BYTES * (HELD - 1)

    def add(self, body: bytes) -> bool:
        """Take one message; False: wait for `room` before the next."""
        self._waiting.append(body)
        self._bytes += len(body)
        if len(self._waiting) == 1:
            self._some.set()
        if not self.full:
            return True
        self._filled.set()
        return False

    async def room(self) -> None:
        """Until more may be added."""
        while self.full:
            self._room.clear()
            await self._room.wait()

    def end(self) -> None:
        """There are no more."""
        self._ended = True
        self._some.set()
        self._filled.set()

    async def store(self) -> None:
        """Put what is added, until the end; StoreUnavailable says how far it came."""
        while await self._chunk():
            bodies, self._waiting, self._bytes = self._waiting, [], 0
            if not self._ended:
                self._some.clear()
                self._filled.clear()
            self._room.set()
            await self._put(bodies)

    async def _chunk(self) -> bool:
        """Wait until there is something worth a store call; False: it has ended."""
        await self._some.wait()
        if not self._ended and not self.full:
            timer = asyncio.get_running_loop().call_later(LINGER, self._filled.set)
            await self._filled.wait()
            timer.cancel()
        return bool(self._waiting)

    async def _put(self, bodies: Sequence[bytes]) -> None:
        items = [_read(body) for body in bodies]
        drafts = [item for _, item in items if isinstance(item, Draft)]
        if self._trace is not None:
            for draft in drafts:
                give_trace(draft, self._trace)
        try:
            outcomes = iter(await self._intake.schedule(drafts) if drafts else ())
        except StoreUnavailable as exc:
            so_far = f"; {self.summary.accepted} messages of the stream are durable"
            raise StoreUnavailable(exc.message + so_far, retry_after=exc.retry_after) from exc
        for given_id, item in items:
            outcome = item if isinstance(item, PenstockError) else next(outcomes)
            if isinstance(outcome, Receipt):
                self.summary.accepted += 1
                self.summary.duplicates += outcome.duplicate
            else:
                self._refuse(outcome, given_id)
            self.summary.received += 1

    def _refuse(self, exc: PenstockError, given_id: str) -> None:
        if self.summary.refused < MAX_REFUSALS:
            self.summary.refusals.append(refused(exc, self.summary.received, given_id))
        self.summary.refused += 1


def _read(body: bytes) -> tuple[str, Draft | PenstockError]:
    """A message with its id as it was given, or what is wrong with it."""
    try:
        asked = pb.ScheduleRequest.FromString(body)
    except DecodeError:
        return "", unreadable()
    try:
        return asked.id, draft_of(asked)
    except PenstockError as exc:
        return asked.id, exc
