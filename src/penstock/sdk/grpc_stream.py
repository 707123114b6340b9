"""A program's messages as a stream of the proto: invalid ones are left out and reported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from penstock.model.draft import Draft
from penstock.model.errors import PenstockError
from penstock.sdk.grpc_shapes import error_from, request_of
from penstock.sdk.summary import MAX_REFUSALS, Refusal, StreamSummary
from penstock.v1 import scheduler_pb2 as pb


class Outpour:
    """Feeds one stream, and merges the server's outcomes with those known before."""

    def __init__(self, drafts: AsyncIterator[Draft | PenstockError]) -> None:
        self._drafts = drafts
        self._read = 0
        self._left_out: list[Refusal] = []
        self.broken: Exception | None = None
        """The error that the program's own iterator raised."""

    async def bodies(self) -> AsyncIterator[bytes]:
        try:
            async for draft in self._drafts:
                body = self._body(draft)
                self._read += 1
                if body is not None:
                    yield body
        except Exception as exc:
            self.broken = exc
            raise

    def summary(self, answer: pb.ScheduleStreamResponse) -> StreamSummary:
        places = [refusal.index for refusal in self._left_out]
        answered = [
            Refusal(_place(refused.index, places), refused.id or None, error_from(refused))
            for refused in answer.refusals
        ]
        refusals = sorted([*answered, *self._left_out], key=lambda refusal: refusal.index)
        return StreamSummary(
            received=self._read,
            accepted=answer.accepted,
            duplicates=answer.duplicates,
            refused=answer.refused + len(self._left_out),
            refusals=tuple(refusals[:MAX_REFUSALS]),
        )

    def _body(self, draft: Draft | PenstockError) -> bytes | None:
        if isinstance(draft, PenstockError):
            self._left_out.append(Refusal(self._read, None, draft))
            return None
        try:
            return request_of(draft).SerializeToString()
        except PenstockError as exc:
            self._left_out.append(Refusal(self._read, draft.id, exc))
            return None


def _place(sent: int, left_out: Sequence[int]) -> int:
    """The index, among all messages, of the one that was sent as number `sent`."""
    for place in left_out:
        if place > sent:
            break
        sent += 1
    return sent
