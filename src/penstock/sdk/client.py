"""The verbs of Penstock over HTTP, for programs without an event loop."""
# Written by scripts/clients.py from async_client.py: change that one.

from __future__ import annotations

import builtins
import time
from collections.abc import Iterable, Iterator
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from penstock.model.outcome import Receipt
from penstock.sdk.asked import change_of, draft_for, filter_of
from penstock.sdk.calls import (
    EITHER,
    ONLY_CANCEL,
    ONLY_DELETE,
    TIMELINE,
    Call,
    Outcome,
    about,
    batches,
    call,
    matching,
    page,
    schedule,
    schedule_batch,
    wire,
    wire_filter,
    with_id,
)
from penstock.sdk.sync_gather import SyncGather
from penstock.sdk.sync_link import SyncLink
from penstock.sdk.sync_rooms import SyncRooms
from penstock.sdk.transport import (
    DEFAULT_RETRIES,
    DEFAULT_TIMEOUT,
    DEFAULT_URL,
    NoReply,
    Wiring,
)

if TYPE_CHECKING:  # a client that only schedules loads neither policies nor figures
    from penstock.model.decision import CounterFigure, Decision
    from penstock.model.message import Event, Message
    from penstock.model.policy import Policy, Suppression
    from penstock.model.status_view import Readiness, RouteStatus, Stats
    from penstock.model.view import BulkResult, Erased
    from penstock.sdk.asked import Delay, MessageLike, Moment
    from penstock.sdk.fields import ChangeFields, FilterFields, MessageFields, QuestionFields
    from penstock.sdk.rules import PolicyLike, SuppressionLike
    from penstock.sdk.sync_recurring import SyncRecurring

T = TypeVar("T")


class Client:
    """A connection pool to one server. Calls that are safe to repeat are repeated, up to `retries`
    times.

    `ca` names a file of authorities to trust for https (PEM); without it the usual ones are.
    `timeout` is in seconds. A bulk change (`cancel_where`, `redrive` …) has none while it runs, and
    is sent again only when it never left: its count would be that of the second time. Messages that
    are scheduled concurrently share requests, each with its own answer; with `gather=False` every
    one is a request of its own.

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
        gather: bool = True,
    ) -> None:
        self._wiring = Wiring(url, token, timeout, retries, ca)
        self._link = SyncLink(self._wiring)
        self._gather = SyncGather(self._send) if gather else None
        self.rooms = SyncRooms(self._send)
        """Waiting rooms."""

    @cached_property
    def recurring(self) -> SyncRecurring:
        """Recurring rules."""
        from penstock.sdk.sync_recurring import SyncRecurring  # noqa: PLC0415 - for those who ask

        return SyncRecurring(self._send)

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
        wanted = with_id(draft_for("schedule", payload, fields), self._wiring.make_id)
        if self._gather is not None:
            return self._gather.schedule(wanted)
        return self._send(schedule(wanted))

    def schedule_many(self, messages: Iterable[MessageLike]) -> list[Outcome]:
        """Keep many at once: one outcome each, in order; bad ones do not hold back the good."""
        return list(self.schedule_stream(messages))

    def schedule_stream(self, messages: Iterable[MessageLike]) -> Iterator[Outcome]:
        """Store any number in constant memory; an outcome follows once its message is durable."""
        for batch in batches(messages, self._wiring.make_id):
            answered = self._send(schedule_batch(bytes(batch.lines))) if batch.sent else []
            yield from batch.outcomes(answered)

    def get(self, message_id: str) -> Message:
        """The message as it is now; UnknownMessage if there is none."""
        return self._send(about("get", message_id))

    def timeline(self, message_id: str) -> list[Event]:
        """The message's events, oldest first."""
        return self._send(about("get", message_id, value=TIMELINE))

    def list(
        self, *, cursor: str | None = None, limit: int = 100, **where: Unpack[FilterFields]
    ) -> tuple[builtins.list[Message], str | None]:
        """A page in order of due, and the cursor of the next one (None: the last).

        A page may have fewer than `limit` messages, or none, with more to come: only a cursor of
        None is the end.
        """
        return self._send(page("list", cursor, limit, wire_filter(filter_of(**where))))

    def cancel(self, message_id: str, *, version: int | None = None) -> Message:
        """Cancelled, now or before; else AlreadyReleased, UnknownMessage or VersionConflict."""
        return self._send(about("cancel", message_id, version=version, query=ONLY_CANCEL))

    def reschedule(
        self, message_id: str, *, version: int | None = None, **change: Unpack[ChangeFields]
    ) -> Message:
        """Change the due time or the content of a message that is still waiting."""
        return self._send(
            about("change", message_id, version=version, content=wire(change_of(**change)))
        )

    def release(self, message_id: str, *, version: int | None = None) -> Message:
        """Make it due now."""
        return self._send(about("release", message_id, version=version))

    def cancel_where(self, *, dry_run: bool = False, **where: Unpack[FilterFields]) -> BulkResult:
        """Cancel everything scheduled that matches; `dry_run` only counts."""
        return self._send(matching("cancelMany", filter_of(**where), dry_run=dry_run))

    def release_where(self, *, dry_run: bool = False, **where: Unpack[FilterFields]) -> BulkResult:
        """Make everything scheduled that matches due now; `dry_run` only counts."""
        return self._send(matching("releaseMany", filter_of(**where), dry_run=dry_run))

    def reschedule_where(
        self,
        *,
        at: Moment | None = None,
        delay: Delay | None = None,
        dry_run: bool = False,
        **where: Unpack[FilterFields],
    ) -> BulkResult:
        """Make every scheduled message that matches due at one moment; `dry_run` only counts.

        A message that would have expired by then counts as matched and is not changed.
        """
        when = wire(change_of(at=at, delay=delay))
        return self._send(matching("rescheduleMany", filter_of(**where), dry_run=dry_run, **when))

    def redrive(
        self, *, rate: str | None = None, dry_run: bool = False, **where: Unpack[FilterFields]
    ) -> BulkResult:
        """Send every dead message that matches again; `rate` paces them ("100/s")."""
        return self._send(matching("redrive", filter_of(**where), rate=rate, dry_run=dry_run))

    def delete(self, message_id: str, *, version: int | None = None) -> Message:
        """Delete a dead message and return it. AlreadyReleased if it is not dead."""
        return self._send(about("cancel", message_id, version=version, query=ONLY_DELETE))

    def delete_dead(self, *, dry_run: bool = False, **where: Unpack[FilterFields]) -> BulkResult:
        """Delete every dead message that matches, with all its data; `dry_run` only counts."""
        return self._send(matching("deleteDead", filter_of(**where), dry_run=dry_run))

    def forget(self, key: str) -> Erased:
        """Erase every message and counter of a key; a message being sent is erased after its send.

        Suppression lists keep the key, so that an opt-out outlives the erasure.
        """
        wanted = {"key": key}
        erased: Erased = self._send(call("forget", content=wanted))
        while erased.next is not None:
            wanted["cursor"] = erased.next
            erased = erased.and_then(self._send(call("forget", content=wanted)))
        return erased

    def routes(self) -> builtins.list[RouteStatus]:
        """Every route, with the store's figures for it."""
        return self._send(call("routes"))

    def pause(self, route: str) -> None:
        """Pause a route: no process sends its messages until it is resumed."""
        self._send(call("pause", route))

    def resume(self, route: str) -> None:
        """Resume a paused route."""
        self._send(call("resume", route))

    def policies(self) -> dict[str, Policy]:
        """Every policy in force, by id."""
        return self._send(call("policies"))

    def put_policy(self, policy_id: str, policy: PolicyLike) -> None:
        """Store a policy; it binds every later decision in every process."""
        self._send(call("putPolicy", policy_id, content=policy))

    def drop_policy(self, policy_id: str) -> None:
        """Delete a policy and its counters."""
        self._send(call("dropPolicy", policy_id))

    def suppressions(self) -> dict[str, Suppression]:
        """Every suppression list, by id, without its keys."""
        return self._send(call("suppressions"))

    def suppression(self, list_id: str) -> Suppression:
        """One list with its keys."""
        return self._send(call("suppression", list_id))

    def put_suppression(self, list_id: str, suppression: SuppressionLike) -> None:
        """Create or replace a list: it has exactly these keys."""
        self._send(call("putSuppression", list_id, content=suppression))

    def drop_suppression(self, list_id: str) -> None:
        """Delete a list: its keys get messages again."""
        self._send(call("dropSuppression", list_id))

    def suppress(self, list_id: str, *keys: str) -> None:
        """Add keys to a list."""
        for key in keys:
            self._send(call("suppress", list_id, key))

    def unsuppress(self, list_id: str, *keys: str) -> None:
        """Take keys off a list."""
        for key in keys:
            self._send(call("unsuppress", list_id, key))

    def explain(self, **asked: Unpack[QuestionFields]) -> Decision:
        """The decision about such a message now, and the reasons; writes nothing."""
        return self._send(call("explain", content=asked))

    def counters(self, key: str) -> builtins.list[CounterFigure]:
        """The counters of the caps for a key."""
        return self._send(call("counters", key))

    def stats(self) -> Stats:
        """The figures of the store and of the server."""
        return self._send(call("stats"))

    def health(self) -> Readiness:
        """Whether the server accepts messages now."""
        return self._send(call("readyz", good=EITHER))

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
