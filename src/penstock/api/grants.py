"""The permissions of a token: its scope, and the routes and classes it is limited to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec

from penstock.model.draft import Draft
from penstock.model.errors import Forbidden, PenstockError
from penstock.model.message import Labels, Message
from penstock.model.query import Filter

if TYPE_CHECKING:
    from penstock.flow.control import Control
    from penstock.flow.intake import Intake, Outcome


class Scope(IntEnum):
    """Permissions of a token; each scope includes the previous ones."""

    OPEN = 0  # no token needed: health and static pages
    METRICS = 1
    READ = 2
    WRITE = 3
    ADMIN = 4


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The caller and its permissions. `routes` limits reads and writes, `classes` only writes."""

    name: str = ""
    """The name for audit lines; empty: no token was used, and no line is written."""
    scope: Scope
    routes: frozenset[str] | None = None
    classes: frozenset[str] | None = None

    @property
    def is_limited(self) -> bool:
        return self.routes is not None or self.classes is not None

    @property
    def sees_details(self) -> bool:
        """True if open pages may show addresses, paths, names of routes and error texts."""
        return self.scope >= Scope.READ and self.routes is None

    def check_unlimited(self, *, reading: bool) -> None:
        """Refuse a call that goes beyond the routes and classes this token is limited to."""
        if self.routes is not None or (self.classes is not None and not reading):
            raise Forbidden("a token that is limited to routes or classes may not do this")

    def check_route(self, route: str) -> None:
        if self.routes is not None and route not in self.routes:
            raise Forbidden(
                f"this token is limited to the routes {_listed(self.routes)}", field="route"
            )

    def check_whole_route(self, route: str) -> None:
        """Check a change to a route itself, which affects messages of every class."""
        self.check_route(route)
        if self.classes is not None:
            raise Forbidden("a token that is limited to classes may not change a route")

    def check_labels(self, labels: Labels | None) -> None:
        if self.classes is not None and (None if labels is None else labels.class_) not in (
            self.classes
        ):
            raise Forbidden(
                f"this token is limited to messages of the classes {_listed(self.classes)}",
                field="labels.class",
            )

    def check_draft(self, draft: Draft | Message) -> None:
        """Refuse to write a message of another route or class."""
        self.check_route(draft.route)
        self.check_labels(draft.labels)

    def covers(self, message: Message) -> bool:
        """True if this token may change the message."""
        try:
            self.check_draft(message)
        except Forbidden:
            return False
        return True

    def narrowed(self, where: Filter, prefix: str = "filter.") -> Filter:
        """The same filter within the token's routes: one route is filled in, several ask which."""
        if self.routes is None:
            return where
        if where.route is None and len(self.routes) == 1:
            (only,) = self.routes
            return msgspec.structs.replace(where, route=only)
        if where.route is None:
            raise Forbidden(
                f"say which route: this token is limited to {_listed(self.routes)}",
                field=f"{prefix}route",
            )
        self.check_route(where.route)
        return where


ANYONE = Grant(scope=Scope.ADMIN)
"""The grant of every caller where no tokens are set: everything is allowed."""
NOBODY = Grant(scope=Scope.OPEN)
"""A caller without a token, or with one that is not known."""


async def check_change(grant: Grant, control: Control, message_id: str) -> None:
    """Refuse to change a stored message of another route or class."""
    if grant.is_limited:
        message, _ = await control.get(message_id)
        grant.check_draft(message)


async def check_drafts(
    grant: Grant, control: Control, drafts: Sequence[Draft]
) -> list[PenstockError | None]:
    """For each draft the reason why this token may not put it, or None.

    A known id is refused if its message is none of this token's, whatever `on_conflict` says: the
    answer to a duplicate has the state and due time of that message.
    """
    refusals: list[PenstockError | None] = [_refusal(grant, draft) for draft in drafts]
    ids = {draft.id for draft in drafts if draft.id is not None}
    stored = {message.id: message for message in await control.find(sorted(ids))} if ids else {}
    for place, draft in enumerate(drafts):
        known = stored.get(draft.id or "")
        if known is not None and refusals[place] is None:
            refusals[place] = _refusal(grant, known)
    return refusals


async def schedule_as(
    grant: Grant, intake: Intake, control: Control, drafts: Sequence[Draft]
) -> list[Outcome]:
    """Schedule as Intake.schedule does, with a refusal for each draft that this token may not
    put.
    """
    if not grant.is_limited:
        return await intake.schedule(drafts)
    refusals = await check_drafts(grant, control, drafts)
    good = [draft for draft, refusal in zip(drafts, refusals, strict=True) if refusal is None]
    outcomes = iter(await intake.schedule(good) if good else ())
    return [next(outcomes) if refusal is None else refusal for refusal in refusals]


def _refusal(grant: Grant, draft: Draft | Message) -> PenstockError | None:
    try:
        grant.check_draft(draft)
    except Forbidden as exc:
        return exc
    return None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
