"""Recurring rules over HTTP, for programs with an event loop."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Unpack

from penstock.sdk.async_rooms import AsyncSend
from penstock.sdk.calls import about_rule, call, page

if TYPE_CHECKING:  # a client that does not ask for rules does not load them
    from penstock.model.recurrence_view import (
        Backfilled,
        Preview,
        RecurringOut,
        RuleDeleted,
        RulePut,
        Triggered,
    )
    from penstock.sdk.asked import Moment
    from penstock.sdk.recurring import RuleFields


class AsyncRecurring:
    """`client.recurring` of an AsyncClient."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    async def put(
        self, rule_id: str, *, version: int | None = None, **fields: Unpack[RuleFields]
    ) -> RulePut:
        """Make a rule or change it; `version`: only if it has this one (VersionConflict)."""
        return await self._send(about_rule("putRule", rule_id, content=fields, version=version))

    async def get(self, rule_id: str) -> RecurringOut:
        """The rule, its next moments and its latest results; UnknownThing if there is none."""
        return await self._send(about_rule("rule", rule_id))

    async def list(
        self, *, cursor: str | None = None, limit: int = 100
    ) -> tuple[builtins.list[RecurringOut], str | None]:
        """A page by id, and the cursor of the next one (None: the last)."""
        return await self._send(page("rules", cursor, limit))

    async def delete(self, rule_id: str, *, version: int | None = None) -> None:
        """Delete the rule; messages that it has planted stay."""
        deleted: RuleDeleted = await self._send(about_rule("dropRule", rule_id, version=version))
        del deleted

    async def pause(self, rule_id: str, *, version: int | None = None) -> RecurringOut:
        """Plant nothing until it is resumed."""
        return await self._send(about_rule("pauseRule", rule_id, version=version))

    async def resume(self, rule_id: str, *, version: int | None = None) -> RecurringOut:
        """Plant again; moments that passed during the pause are not made up for."""
        return await self._send(about_rule("resumeRule", rule_id, version=version))

    async def trigger(self, rule_id: str) -> str:
        """Put one more message of the rule, due now; its id."""
        triggered: Triggered = await self._send(about_rule("triggerRule", rule_id))
        return triggered.id

    async def backfill(self, rule_id: str, first: Moment, last: Moment) -> int:
        """Put past moments, both ends included, that are not known; how many there were."""
        span = {"from": first, "to": last}
        filled: Backfilled = await self._send(about_rule("backfillRule", rule_id, content=span))
        return filled.planted

    async def preview(self, **fields: Unpack[RuleFields]) -> Preview:
        """The moments of such a rule and their description in words; nothing is stored."""
        return await self._send(call("previewRule", content=fields))
