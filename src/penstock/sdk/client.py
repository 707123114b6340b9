"""The verbs of Penstock over HTTP, for programs without an event loop."""

from __future__ import annotations

import builtins
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self, TypeVar, Unpack

from penstock.model.decision import CounterFigure, Decision
from penstock.model.message import Event, Message
from penstock.model.outcome import Receipt
from penstock.model.policy import Policy, Suppression
from penstock.model.status_view import Readiness, RouteStatus, Stats
from penstock.model.view import BulkResult, Erased, added
from penstock.sdk import calls
from penstock.sdk.asked import (
    Delay,
    MessageLike,
    Moment,
    PolicyLike,
    SuppressionLike,
    change_of,
    draft_for,
    filter_of,
    page_size,
    policy_value,
    question,
    suppression_value,
)
from penstock.sdk.calls import Call, Outcome
from penstock.sdk.fields import ChangeFields, FilterFields, MessageFields, QuestionFields
from penstock.sdk.sync_link import SyncLink
from penstock.sdk.sync_rooms import SyncRooms
from penstock.sdk.transport import (
    DEFAULT_RETRIES,
    DEFAULT_TIMEOUT,
    DEFAULT_URL,
    NoReply,
    Wiring,
)

T = TypeVar("T")


class Client:
    """A connection pool to one server. What is safe to repeat is repeated, up to `retries` times.

    `ca` names a file of authorities to trust for https (PEM); without it the usual ones are.
    `timeout` is in seconds. A bulk change (`cancel_where`, `redrive` …) has none while it runs, and
    is sent again only when it never left: its count would be that of the second time.

    with penstock.Client("http://127.0.0.1:8700", token="…") as client:
        client.schedule({"hello": "later"}, delay="15m")
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        retries: int = DEFAULT_RETRIES,
        ca: str | None = None,
    ) -> None:
        self._wiring = Wiring(url, token, timeout, retries, ca)
        self._link = SyncLink(self._wiring)
        self.rooms = SyncRooms(self._send)
        """Waiting rooms."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the client cannot be used after."""
        self._link.close()

    def schedule(self, payload: object = None, **fields: Unpack[MessageFields]) -> Receipt:
        """Keep a message until its moment (`at` or `delay`; neither: now). Durable on return."""
        wanted = calls.with_id(draft_for("schedule", payload, fields), self._wiring.make_id)
        return self._send(calls.schedule(wanted))

    def schedule_many(self, messages: Iterable[MessageLike]) -> list[Outcome]:
        """Keep many at once: one outcome each, in order; bad ones do not hold back the good."""
        return builtins.list(self.schedule_stream(messages))

    def schedule_stream(self, messages: Iterable[MessageLike]) -> Iterator[Outcome]:
        """Keep any number in constant memory: outcomes come as the messages are durable."""
        for batch in calls.batches(messages, self._wiring.make_id):
            answered = self._send(calls.schedule_batch(bytes(batch.lines))) if batch.sent else []
            yield from batch.outcomes(answered)

    def get(self, message_id: str) -> Message:
        """The message as it is now; UnknownMessage if there is none."""
        return self._send(calls.get(message_id))

    def timeline(self, message_id: str) -> list[Event]:
        """What happened to it, oldest first."""
        return self._send(calls.timeline(message_id))

    def list(
        self, *, cursor: str | None = None, limit: int = 100, **where: Unpack[FilterFields]
    ) -> tuple[builtins.list[Message], str | None]:
        """A page in order of due, and the cursor of the next one (None: the last).

        A page may have fewer than `limit` messages, or none, with more to come: only a cursor of
        None is the end.
        """
        return self._send(calls.list_page(filter_of(**where), cursor, page_size(limit)))

    def cancel(self, message_id: str, *, version: int | None = None) -> Message:
        """Cancelled, now or before; else AlreadyReleased, UnknownMessage or VersionConflict."""
        return self._send(calls.cancel(message_id, version))

    def reschedule(
        self, message_id: str, *, version: int | None = None, **change: Unpack[ChangeFields]
    ) -> Message:
        """Change when it goes out, or what it says, while it is still waiting."""
        return self._send(calls.reschedule(message_id, change_of(**change), version))

    def release(self, message_id: str, *, version: int | None = None) -> Message:
        """Make it due now."""
        return self._send(calls.release(message_id, version))

    def cancel_where(self, *, dry_run: bool = False, **where: Unpack[FilterFields]) -> BulkResult:
        """Cancel everything scheduled that matches; `dry_run` only counts."""
        return self._send(calls.cancel_where(filter_of(**where), dry_run=dry_run))

    def release_where(self, *, dry_run: bool = False, **where: Unpack[FilterFields]) -> BulkResult:
        """Make everything scheduled that matches due now; `dry_run` only counts."""
        return self._send(calls.release_where(filter_of(**where), dry_run=dry_run))

    def reschedule_where(
        self,
        *,
        at: Moment | None = None,
        delay: Delay | None = None,
        dry_run: bool = False,
        **where: Unpack[FilterFields],
    ) -> BulkResult:
        """Make everything scheduled that matches due at one moment; `dry_run` only counts.

        What would have expired by then is matched and not done.
        """
        when = change_of(at=at, delay=delay)
        return self._send(calls.reschedule_where(filter_of(**where), when, dry_run=dry_run))

    def redrive(
        self, *, rate: str | None = None, dry_run: bool = False, **where: Unpack[FilterFields]
    ) -> BulkResult:
        """Send the dead that match once more; `rate` paces them ("100/s")."""
        return self._send(calls.redrive(filter_of(**where), rate=rate, dry_run=dry_run))

    def delete(self, message_id: str, *, version: int | None = None) -> Message:
        """Delete a dead message; what it was. AlreadyReleased if it is not dead."""
        return self._send(calls.delete(message_id, version))

    def delete_dead(self, *, dry_run: bool = False, **where: Unpack[FilterFields]) -> BulkResult:
        """Delete the dead that match: nothing of them is kept; `dry_run` only counts."""
        return self._send(calls.delete_dead(filter_of(**where), dry_run=dry_run))

    def forget(self, key: str) -> Erased:
        """Erase every message and counter of a key; what is being sent goes when that has ended.

        Suppression lists keep the key, so that an opt-out outlives the erasure.
        """
        erased = self._send(calls.forget(key, None))
        while erased.next is not None:
            erased = added(erased, self._send(calls.forget(key, erased.next)))
        return erased

    def routes(self) -> builtins.list[RouteStatus]:
        """Every route, with what the store holds for it."""
        return self._send(calls.routes())

    def pause(self, route: str) -> None:
        """Hold everything of a route, in every process."""
        self._send(calls.pause(route, True))

    def resume(self, route: str) -> None:
        """Let a paused route go on."""
        self._send(calls.pause(route, False))

    def policies(self) -> dict[str, Policy]:
        """Every policy in force, by id."""
        return self._send(calls.policies())

    def put_policy(self, policy_id: str, policy: PolicyLike) -> None:
        """Keep a policy for what is decided from now on, in every process."""
        self._send(calls.put_policy(policy_id, policy_value(policy)))

    def drop_policy(self, policy_id: str) -> None:
        """Forget a policy and its counters."""
        self._send(calls.drop_policy(policy_id))

    def suppressions(self) -> dict[str, Suppression]:
        """Every suppression list, by id, without its keys."""
        return self._send(calls.suppressions())

    def suppression(self, list_id: str) -> Suppression:
        """One list with its keys."""
        return self._send(calls.suppression(list_id))

    def put_suppression(self, list_id: str, suppression: SuppressionLike) -> None:
        """Keep a list with exactly these keys."""
        self._send(calls.put_suppression(list_id, suppression_value(suppression)))

    def drop_suppression(self, list_id: str) -> None:
        """Forget a list."""
        self._send(calls.drop_suppression(list_id))

    def suppress(self, list_id: str, *keys: str) -> None:
        """Add keys to a list."""
        for key in keys:
            self._send(calls.suppress(list_id, key))

    def unsuppress(self, list_id: str, *keys: str) -> None:
        """Take keys off a list."""
        for key in keys:
            self._send(calls.unsuppress(list_id, key))

    def explain(self, **asked: Unpack[QuestionFields]) -> Decision:
        """What would be decided of a message now, and why; writes nothing."""
        return self._send(calls.explain(question(**asked)))

    def counters(self, key: str) -> builtins.list[CounterFigure]:
        """What caps have counted for a key."""
        return self._send(calls.counters(key))

    def stats(self) -> Stats:
        """What the store holds, and what the server did."""
        return self._send(calls.stats())

    def health(self) -> Readiness:
        """Whether messages can be taken now."""
        return self._send(calls.health())

    def _send(self, call: Call[T]) -> T:
        tries = self._wiring.tries()
        while True:
            try:
                reply = self._link.carry(call)
            except NoReply as exc:
                tries.failed(call, exc)
            else:
                if not tries.busy(call, reply):
                    return call.answer(reply.body)
            time.sleep(tries.pause())
