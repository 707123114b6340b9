"""The verbs of Penstock over gRPC, for programs with an event loop."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from msgspec import UnsetType

from penstock.model.draft import Draft
from penstock.model.errors import PenstockError, missing_extra
from penstock.model.identity import IdMaker
from penstock.model.message import Event, Message
from penstock.model.outcome import Receipt
from penstock.model.view import BulkResult
from penstock.sdk.asked import MessageLike, change_of, draft_for, drafted, filter_of
from penstock.sdk.calls import Outcome, with_id
from penstock.sdk.fields import ChangeFields, FilterFields, MessageFields
from penstock.sdk.transport import DEFAULT_RETRIES, DEFAULT_TIMEOUT, check_ca, check_token
from penstock.time.chance import given_or_fresh

if TYPE_CHECKING:
    import grpc

    from penstock.sdk.grpc_link import Link
    from penstock.sdk.summary import StreamSummary

DEFAULT_ADDRESS = "127.0.0.1:8701"
BATCH = 500
BATCH_BYTES = 2 * 1024 * 1024
"""Bytes of one request of a long batch: few enough to be sent again after a server failure."""


class GrpcClient:
    """A channel to one server. Calls that are safe to repeat are repeated, up to `retries` times.

    `timeout` is in seconds and is each try's deadline; a stream (`schedule_all`) has none. `ca`
    names a file of authorities to trust (PEM): the channel then speaks TLS; `credentials` are
    grpc's own, for every other kind of TLS. Needs the `grpc` extra.

        async with penstock.GrpcClient("127.0.0.1:8701", token="…") as client:
            await client.schedule({"hello": "later"}, delay="15m")
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        token: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        retries: int = DEFAULT_RETRIES,
        credentials: grpc.ChannelCredentials | None = None,
        ca: str | None = None,
    ) -> None:
        check_token(token)
        check_ca(ca)
        self._ids = IdMaker(given_or_fresh(None))
        self._settings = (address, token, timeout, retries, credentials, ca)
        self._open: Link | None = None

    @property
    def _link(self) -> Link:
        """Opened with the first call, since a channel belongs to an event loop."""
        if self._open is None:
            try:
                from penstock.sdk.grpc_link import Link  # noqa: PLC0415 - only with its extra
            except ModuleNotFoundError as exc:
                raise missing_extra("penstock.GrpcClient", "grpc") from exc
            self._open = Link(*self._settings)
        return self._open

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the channel; the next call would open another."""
        link, self._open = self._open, None
        if link is not None:
            await link.close()

    async def schedule(self, payload: object = None, **fields: Unpack[MessageFields]) -> Receipt:
        """Keep a message until its moment (`at` or `delay`; neither: now). Durable on return."""
        return await self._link.schedule(self._named(draft_for("schedule", payload, fields)))

    async def schedule_many(self, messages: Iterable[MessageLike]) -> list[Outcome]:
        """Keep many at once: one outcome each, in order; bad ones do not hold back the good."""
        return [outcome async for outcome in self.schedule_stream(messages)]

    async def schedule_stream(self, messages: Iterable[MessageLike]) -> AsyncIterator[Outcome]:
        """Store any number in constant memory; an outcome follows once its message is durable."""
        for batch in self._batches(messages):
            drafts = [item for item in batch if isinstance(item, Draft)]
            outcomes = iter(await self._link.schedule_batch(drafts))
            for item in batch:
                yield item if isinstance(item, PenstockError) else next(outcomes)

    async def schedule_all(
        self, messages: Iterable[MessageLike] | AsyncIterable[MessageLike]
    ) -> StreamSummary:
        """Store any number of messages through one stream; return its summary at the end.

        `schedule_stream` sends batches, which costs much less CPU per message. This one is not
        repeated when it breaks. Send it again yourself, with ids of your own: a message that was
        stored before is then a duplicate.
        """
        return await self._link.pour(self._drafts(messages))

    async def get(self, message_id: str) -> Message:
        """The message as it is now; UnknownMessage if there is none."""
        return (await self._link.get(message_id))[0]

    async def timeline(self, message_id: str) -> list[Event]:
        """The message's events, oldest first."""
        return (await self._link.get(message_id))[1]

    async def cancel(self, message_id: str, *, version: int | None = None) -> Message:
        """Cancelled, now or before; else AlreadyReleased, UnknownMessage or VersionConflict."""
        return await self._link.cancel(message_id, version)

    async def reschedule(
        self, message_id: str, *, version: int | None = None, **change: Unpack[ChangeFields]
    ) -> Message:
        """Change the due time or the content of a message that is still waiting."""
        return await self._link.reschedule(message_id, change_of(**change), version)

    async def delete(self, message_id: str, *, version: int | None = None) -> Message:
        """Delete a dead message and return it. AlreadyReleased if it is not dead."""
        return await self._link.delete(message_id, version)

    async def delete_dead(
        self, *, dry_run: bool = False, **where: Unpack[FilterFields]
    ) -> BulkResult:
        """Delete every dead message that matches, with all its data; `dry_run` only counts."""
        return await self._link.delete_dead(filter_of(**where), dry_run=dry_run)

    def _named(self, draft: Draft) -> Draft:
        return with_id(draft, lambda: self._ids.make(time.time_ns() // 1_000_000))

    def _item(self, message: object) -> Draft | PenstockError:
        item = drafted(message)
        return self._named(item) if isinstance(item, Draft) else item

    def _batches(self, messages: Iterable[MessageLike]) -> Iterator[list[Draft | PenstockError]]:
        batch: list[Draft | PenstockError] = []
        size = 0
        for message in messages:
            batch.append(item := self._item(message))
            size += _size(item)
            if len(batch) >= BATCH or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    async def _drafts(
        self, messages: Iterable[MessageLike] | AsyncIterable[MessageLike]
    ) -> AsyncIterator[Draft | PenstockError]:
        if isinstance(messages, AsyncIterable):
            async for message in messages:
                yield self._item(message)
        else:
            for message in messages:
                yield self._item(message)


def _size(item: Draft | PenstockError) -> int:
    if isinstance(item, PenstockError):
        return 0
    payload = b"" if isinstance(item.payload, UnsetType) else bytes(item.payload)
    return len(payload) + len(item.payload_base64 or "")
