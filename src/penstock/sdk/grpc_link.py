"""The channel of a gRPC client: sends requests, and repeats those that are safe to repeat."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message as Proto

from penstock.model.draft import Draft
from penstock.model.errors import PenstockError, ServerFault
from penstock.model.message import Event, Message
from penstock.model.outcome import Receipt
from penstock.model.patch import Patch
from penstock.model.query import Filter
from penstock.model.view import BulkResult
from penstock.sdk.calls import Outcome
from penstock.sdk.grpc_faults import failed
from penstock.sdk.grpc_shapes import (
    change_request,
    dead_request,
    message_from,
    outcome_from,
    receipt_from,
    request_of,
    timeline_from,
)
from penstock.sdk.grpc_stream import Outpour
from penstock.sdk.summary import StreamSummary
from penstock.sdk.transport import MAX_RETRY_AFTER, Patience
from penstock.v1 import scheduler_pb2 as pb

SERVICE = "/penstock.v1.Scheduler"
Answer = TypeVar("Answer", bound=Proto)


class Link:
    """One channel; used by one event loop."""

    def __init__(
        self,
        address: str,
        token: str | None,
        timeout: float,
        retries: int,
        credentials: Any,
        ca: str | None,
    ) -> None:
        if credentials is None and ca is not None:
            credentials = grpc.ssl_channel_credentials(Path(ca).read_bytes())
        options = (("grpc.max_receive_message_length", -1),)
        self._channel = (
            grpc.aio.insecure_channel(address, options)
            if credentials is None
            else grpc.aio.secure_channel(address, credentials, options)
        )
        self._address = address
        self._metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        self._timeout = timeout
        self._retries = retries
        self._chance = random.Random()

    async def schedule(self, draft: Draft) -> Receipt:
        request = request_of(draft)
        answer = await self._ask("Schedule", request, pb.ScheduleResponse, about_id=draft.id)
        return receipt_from(answer)

    async def schedule_batch(self, drafts: Sequence[Draft]) -> list[Outcome]:
        """One outcome each, in order; a draft's own error is found before it is sent."""
        items = [_requested(draft) for draft in drafts]
        sent = [item for item in items if isinstance(item, pb.ScheduleRequest)]
        outcomes: Iterator[Outcome] = iter(())
        if sent:
            request = pb.ScheduleBatchRequest(messages=sent)
            answer = await self._ask("ScheduleBatch", request, pb.ScheduleBatchResponse)
            if len(answer.outcomes) != len(sent):
                said = f"{len(answer.outcomes)} outcomes for {len(sent)} messages"
                raise ServerFault(f"the server answered {said}", status=0)
            outcomes = map(outcome_from, answer.outcomes)
        return [item if isinstance(item, PenstockError) else next(outcomes) for item in items]

    async def get(self, message_id: str) -> tuple[Message, list[Event]]:
        request = pb.GetRequest(id=message_id)
        shown = await self._ask("Get", request, pb.Message, about_id=message_id)
        return message_from(shown), timeline_from(shown)

    async def cancel(self, message_id: str, version: int | None) -> Message:
        request = pb.CancelRequest(id=message_id, version=version)
        return await self._change("Cancel", request, message_id, version)

    async def reschedule(self, message_id: str, change: Patch, version: int | None) -> Message:
        request = change_request(message_id, change, version)
        return await self._change("Reschedule", request, message_id, version)

    async def delete(self, message_id: str, version: int | None) -> Message:
        request = pb.DeleteRequest(id=message_id, version=version)
        return await self._change("Delete", request, message_id, version)

    async def delete_dead(self, where: Filter, *, dry_run: bool) -> BulkResult:
        request = dead_request(where, dry_run=dry_run)
        answer = await self._ask("DeleteDead", request, pb.BulkResponse, repeatable=dry_run)
        return BulkResult(answer.matched, answer.done)

    async def _change(
        self, verb: str, request: Proto, message_id: str, version: int | None
    ) -> Message:
        """A version that was just used up cannot be used again: then it is not repeated."""
        shown = await self._ask(
            verb, request, pb.Message, about_id=message_id, repeatable=version is None
        )
        return message_from(shown)

    async def _ask(
        self,
        verb: str,
        request: Proto,
        kind: type[Answer],
        *,
        about_id: str | None = None,
        repeatable: bool = True,
    ) -> Answer:
        """Send the request; an unanswered one is sent again only if it is `repeatable`."""
        call: Any = self._channel.unary_unary(f"{SERVICE}/{verb}")
        body = request.SerializeToString()
        patience = Patience(self._retries, self._chance)
        while True:
            try:
                answer = await call(body, timeout=self._timeout, metadata=self._metadata)
            except grpc.aio.AioRpcError as exc:
                fault, busy, unheard, wait = failed(exc, self._address, about_id)
                may_help = busy or (unheard and repeatable)
                if not may_help or (wait or 0.0) > MAX_RETRY_AFTER:
                    raise fault from exc
                fault.__cause__ = exc
                pause = patience.again(fault, wait)
            else:
                return kind.FromString(answer)
            await asyncio.sleep(pause)

    async def pour(self, drafts: AsyncIterator[Draft | PenstockError]) -> StreamSummary:
        """Send one stream, at the server's pace; not repeated, since its source cannot be
        reread.
        """
        flow = Outpour(drafts)
        call: Any = self._channel.stream_unary(f"{SERVICE}/ScheduleStream")
        under_way = call(flow.bodies(), metadata=self._metadata)
        try:
            answer = pb.ScheduleStreamResponse.FromString(await under_way)
        except grpc.aio.AioRpcError as exc:
            raise failed(exc, self._address, None).fault from exc
        except asyncio.CancelledError:
            if flow.broken is not None:  # the library reports only that it was cancelled
                raise flow.broken from None
            raise
        finally:
            under_way.cancel()
        return flow.summary(answer)

    async def close(self) -> None:
        await self._channel.close()


def _requested(draft: Draft) -> pb.ScheduleRequest | PenstockError:
    try:
        return request_of(draft)
    except PenstockError as exc:
        return exc
