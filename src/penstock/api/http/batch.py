"""`/v1/messages/batch`: any number of messages, in constant memory.

The body is cut into items as it arrives and put in chunks; the outcomes wait in a spool (small in
memory, large in a file) and are sent when the body has ended, in the format of the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import IO

import msgspec

from penstock.api.grants import ANYONE, Grant, schedule_as
from penstock.api.http.answer import JSON, NO_STORE, Receive, Reply, Send, send_head
from penstock.api.http.auth import JSON_TYPES, NDJSON_TYPES
from penstock.api.http.context import Api
from penstock.api.http.errors import error_answer, error_info
from penstock.api.http.receiving import Holding
from penstock.api.http.request import Request
from penstock.api.http.shapes import Refused
from penstock.api.http.split import PAUSE, Array, Block, Item, Lines, Splitter
from penstock.flow.intake import Outcome
from penstock.model.draft import Draft, decode_draft
from penstock.model.errors import Malformed, NoRoom, PenstockError, StoreUnavailable
from penstock.model.outcome import Receipt
from penstock.model.times import format_moment
from penstock.model.trace import give_trace
from penstock.model.view import Accepted

CHUNK = 500
"""Messages a store call gets."""
CHUNK_BYTES = 4 << 20
"""… or fewer, when they are large."""
SPOOL_IN_MEMORY = 1 << 20
SPOOL_FREE = 64 << 20
"""Bytes of outcomes that any body may have."""
SPOOL_RATIO = 16
"""… and how many times as long as the body they may be beyond that."""
MAX_UNREADABLE = 1_000
"""Items in a row that cannot be read: no batch, but something else."""
PIECE = 1 << 16
"""Bytes of outcomes sent at once."""
NDJSON = "application/x-ndjson"

_encoder = msgspec.json.Encoder()


async def create_messages(request: Request) -> Reply:
    api = request.api
    kind = api.guard.check_type(request.headers.get(b"content-type"), JSON_TYPES | NDJSON_TYPES)
    limit = api.parts.settings.api.max_body
    lines = kind in NDJSON_TYPES
    splitter: Splitter = Lines(limit) if lines else Array(limit)
    outcomes = Outcomes(lines=lines)
    taking = Taking(api, outcomes, request.text("traceparent"), request.grant)
    try:
        with Holding(api.receiving) as holding:
            await _read(request.chunks(), splitter, taking, holding)
        await taking.finish()
        return outcomes.answer()
    except OSError as exc:
        raise outcomes.no_room(exc) from exc
    except BaseException:
        outcomes.close()
        raise


async def _read(
    body: AsyncIterator[bytes], splitter: Splitter, taking: Taking, holding: Holding
) -> None:
    """Take every item of the body, or all up to where it is no use to go on."""
    async for chunk in body:
        taking.read += len(chunk)
        if await _take(splitter.feed(chunk), taking):
            return
        holding.become(splitter.held + taking.held)
    await _take(splitter.end(), taking)


async def _take(items: Iterator[Item], taking: Taking) -> bool:
    """Take the items; True when the rest of the body is to be skipped, as the last outcome says."""
    for item in items:
        if item is PAUSE:
            await asyncio.sleep(0)
            continue
        taking.add(item)
        while taking.full:
            await taking.flush()
        reason = taking.hopeless
        if reason is not None:
            taking.add(Malformed(f"{reason}; the rest of the body was not read"))
            return True
    return False


class Taking:
    """Collects items and puts them chunk by chunk."""

    def __init__(
        self,
        api: Api,
        outcomes: Outcomes,
        traceparent: str | None = None,
        grant: Grant = ANYONE,
    ) -> None:
        self._traceparent = traceparent
        self._parts = api.parts
        self._audit = api.audit
        self._grant = grant
        self._outcomes = outcomes
        self._items: list[Draft | PenstockError] = []
        self._bytes = 0
        self._unreadable = 0
        """Items in a row that could not be read."""
        self.read = 0
        """Bytes of the body."""

    @property
    def held(self) -> int:
        """Bytes of items that are not put yet."""
        return self._bytes

    @property
    def hopeless(self) -> str | None:
        """Why it is no use to go on with this body, if it is none."""
        if self._unreadable >= MAX_UNREADABLE:
            return f"{MAX_UNREADABLE:,} items in a row could not be read"
        size = self._outcomes.size
        if size > SPOOL_FREE and size > SPOOL_RATIO * self.read:
            return f"the outcomes are more than {SPOOL_RATIO} times as long as the body"
        return None

    @property
    def full(self) -> bool:
        return len(self._items) >= CHUNK or self._bytes >= CHUNK_BYTES

    def add(self, item: Item) -> None:
        if isinstance(item, Block):
            self._bytes += item.size
            self._items += item.drafts
            self._unreadable = 0
        elif isinstance(item, bytes):
            self._bytes += len(item)
            try:
                self._items.append(decode_draft(item))
                self._unreadable = 0
            except PenstockError as exc:
                self._refuse(exc)
        else:
            self._refuse(item)

    def _refuse(self, exc: PenstockError) -> None:
        self._items.append(exc)
        self._unreadable += 1

    async def finish(self) -> None:
        """Put the remaining items."""
        while self._items:
            await self.flush()

    async def flush(self) -> None:
        """Put one chunk."""
        items, self._items, self._bytes = self._items[:CHUNK], self._items[CHUNK:], 0
        drafts = [item for item in items if isinstance(item, Draft)]
        if self._traceparent is not None:
            for draft in drafts:
                give_trace(draft, self._traceparent)
        stored: list[Outcome]
        try:
            stored = await self._put(drafts) if drafts else []
        except StoreUnavailable as exc:
            stored = [exc] * len(drafts)
        results = iter(stored)
        self._outcomes.add(
            [
                (item.id, next(results)) if isinstance(item, Draft) else (None, item)
                for item in items
            ]
        )
        await asyncio.sleep(0)  # a long batch must not block other requests

    async def _put(self, drafts: list[Draft]) -> list[Outcome]:
        parts = self._parts
        outcomes = await schedule_as(self._grant, parts.intake, parts.control, drafts)
        self._audit.scheduled(self._grant, drafts, outcomes)
        return outcomes


class Outcomes:
    """The outcomes in order, spooled, and their totals."""

    def __init__(self, *, lines: bool) -> None:
        self._lines = lines
        self._spool: IO[bytes] = tempfile.SpooledTemporaryFile(SPOOL_IN_MEMORY)  # noqa: SIM115 - the answer closes it
        self._count = 0
        self._bad = 0
        self._store_away: StoreUnavailable | None = None
        self._last: PenstockError | None = None

    @property
    def size(self) -> int:
        """Bytes of all outcomes so far."""
        return self._spool.tell()

    def add(self, outcomes: list[tuple[str | None, Outcome]]) -> None:
        moments: dict[int, str] = {}
        """Messages of a batch are often due together."""
        results: list[Accepted | Refused] = []
        for given, outcome in outcomes:
            if isinstance(outcome, Receipt):
                due = moments.get(outcome.due)
                if due is None:
                    due = moments[outcome.due] = format_moment(outcome.due)
                results.append(Accepted(outcome.id, outcome.state, due, outcome.duplicate))
            else:
                self._bad += 1
                self._last = outcome
                if isinstance(outcome, StoreUnavailable):
                    self._store_away = outcome
                results.append(Refused(given, error_info(outcome)))
        if self._lines:
            self._spool.write(_encoder.encode_lines(results))
        elif results:
            self._spool.write(b"," if self._count else b"[")
            self._spool.write(memoryview(_encoder.encode(results))[1:-1])
        self._count += len(results)

    @property
    def _empty(self) -> Malformed | None:
        """A body that got lost on its way must not look like one that was taken."""
        return None if self._count else Malformed("the body is empty: send one message per line")

    @property
    def _only_malformed(self) -> Malformed | None:
        """The error of a body that could not be read at all, and so has no other outcome."""
        alone = self._count == self._bad == 1
        return self._last if alone and isinstance(self._last, Malformed) else None

    @property
    def status(self) -> int:
        if self._count == self._bad and self._store_away is not None:
            return 503
        return 207 if self._bad else 200

    def answer(self) -> Reply:
        """The answer with all outcomes; it takes over the spool."""
        unread = self._empty if self._lines else self._only_malformed
        if unread is not None:
            self.close()
            return error_answer(unread)
        if not self._lines:
            self._spool.write(b"]" if self._count else b"[]")
        size = self._spool.tell()
        self._spool.seek(0)
        return SpooledAnswer(self.status, self._spool, size, NDJSON if self._lines else JSON)

    def no_room(self, exc: OSError) -> NoRoom:
        """Close a spool that cannot be written to, and return the error with the counts so far."""
        with contextlib.suppress(OSError):
            self.close()
        return NoRoom(
            f"there is no room for the outcomes of this batch ({exc.strerror}, in"
            f" {tempfile.gettempdir()}); at least {self._count - self._bad} of its messages are"
            " stored: free some space and repeat the batch with the same ids, or send less at once"
        )

    def close(self) -> None:
        self._spool.close()


class SpooledAnswer:
    """Sends a file piece by piece, at the client's pace, and closes it."""

    def __init__(self, status: int, spool: IO[bytes], size: int, media: str) -> None:
        self._status = status
        self._size = size
        retry = (("retry-after", "1"),) if status == 503 else ()
        self._headers = (NO_STORE, *retry, ("content-type", media))
        self._spool = spool

    async def send(self, receive: Receive, send: Send) -> None:
        del receive
        with self._spool:
            await send_head(send, self._status, self._headers, self._size)
            while piece := self._spool.read(PIECE):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
