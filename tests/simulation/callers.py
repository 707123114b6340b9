"""Those who ask: what each asks is drawn from its own number, what was answered is kept."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.model.draft import Draft
from penstock.model.errors import (
    AlreadyReleased,
    InvalidMessage,
    StoreUnavailable,
    UnknownMessage,
    UnknownRoute,
    VersionConflict,
)
from penstock.model.message import Labels, OnConflict
from penstock.model.outcome import Receipt
from penstock.model.patch import Patch
from penstock.model.query import Filter
from penstock.model.state import State
from penstock.model.times import format_moment
from tests.simulation.broker import Broker
from tests.simulation.clocks import ServerClock
from tests.simulation.journal import Journal
from tests.simulation.plan import UNSTORABLE, Ask, Asked, Plan
from tests.simulation.process import Life

AHEAD = (0.0, 0.0, 0.05, 0.4, 2, 2, 6, 15, 86_400)
"""Seconds ahead of now that messages are for."""
POISON = b'{"id": 7, "route"'
BURST = (6, 8, 9, 9, 15)
BATCHES = "1.8 in a batch each item has its own outcome"


@dataclass(slots=True)
class Answers:
    """What callers were told, by message."""

    accepted: dict[str, int] = field(default_factory=dict)
    """Id → the due of the receipt."""
    by_delay: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Id → the server's time when it was asked for, and the delay asked."""
    cancelled: dict[str, int] = field(default_factory=dict)
    """Id → world's time at which the cancel was answered with done."""
    moved: set[str] = field(default_factory=set)
    """Ids whose due somebody tried to change."""
    published: dict[str, str] = field(default_factory=dict)
    """Id → the record it came by."""
    poison: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    """Ids somebody tried to put, answered or not."""


class Callers:
    def __init__(self, plan: Plan, clock: ServerClock, journal: Journal, broker: Broker) -> None:
        self._plan = plan
        self._clock = clock
        self._journal = journal
        self._broker = broker
        self.answers = Answers()

    def publish(self, asked: Asked) -> None:
        """By the broker: no process is needed for that."""
        chance = self._chance(asked)
        if asked.ask is Ask.POISON:
            for _ in range(chance.randint(2, 4)):
                self.answers.poison.append(self._broker.publish(POISON))
            return
        if chance.random() < 0.2:
            self.answers.poison.append(self._broker.publish(POISON))
            return
        if asked.ask is Ask.UNSTORABLE:
            for place in range(5):
                is_bad = place == 2 and self._plan.stays is not None
                name = f"{UNSTORABLE if is_bad else 'l'}{asked.number}-{place}"
                origin = self._broker.publish(
                    msgspec.json.encode({"id": name, "key": "k0", "payload": 1})
                )
                if is_bad:
                    self.answers.poison.append(origin)
                else:
                    self.answers.published[name] = origin
            return
        name = f"l{asked.number}"
        body = {"id": name, "key": "k0", "payload": 1, "delay": chance.choice(AHEAD[:-1])}
        self.answers.published[name] = self._broker.publish(msgspec.json.encode(body))
        self.answers.tried.append(name)

    async def ask(self, asked: Asked, life: Life) -> None:
        chance = self._chance(asked)
        self._journal.note(life.name, "asked", "", f"{asked.ask} {asked.number}")
        try:
            await self._do(asked, chance, life)
        except StoreUnavailable:
            self._journal.note(life.name, "unanswered", "", str(asked.number))
        except InvalidMessage as exc:
            if exc.field != "expires":  # a clock that was set may have passed it
                raise

    async def _do(self, asked: Asked, chance: random.Random, life: Life) -> None:
        match asked.ask:
            case Ask.PUT:
                await self._put(self._draft(asked, chance), life)
            case Ask.AGAIN:
                draft = self._draft(asked, chance)
                draft.id = self._some(chance) or draft.id
                draft.on_conflict = chance.choice(list(OnConflict))
                if draft.on_conflict is not OnConflict.KEEP and draft.id is not None:
                    self.answers.moved.add(draft.id)
                await self._put(draft, life)
            case Ask.BATCH:
                await self._batch(asked, chance, life)
            case Ask.BURST:
                await self._burst(asked, chance, life)
            case Ask.SEARCH:
                await life.control.search(Filter(route="a"), None, 5)
                await life.store.figures(life.clock.now())
            case Ask.CANCEL_WHERE:
                await life.control.cancel_where(Filter(key="k3"))
            case Ask.REDRIVE:
                await life.control.redrive_where(Filter(), rate=chance.choice((None, 5.0)))
            case _:
                await self._amend(asked, chance, life)

    async def _put(self, draft: Draft, life: Life) -> None:
        name = draft.id or ""
        self.answers.tried.append(name)
        asked = self._clock.now()
        receipt = await life.intake.schedule_one(draft)
        self._accepted(receipt, life)
        if isinstance(draft.delay, float | int) and not receipt.duplicate:
            self.answers.by_delay[receipt.id] = asked, draft.delay

    def _accepted(self, receipt: Receipt, life: Life) -> None:
        self._journal.note(life.name, "accepted", receipt.id)
        self.answers.accepted.setdefault(receipt.id, receipt.due)

    async def _batch(self, asked: Asked, chance: random.Random, life: Life) -> None:
        drafts = []
        for place in range(chance.randint(2, 8)):
            draft = self._draft(asked, chance)
            draft.id = f"m{asked.number}-{place}"
            if chance.random() < 0.2:
                draft.route = "nowhere"
            elif chance.random() < 0.1:
                draft.priority = 12
            drafts.append(draft)
        self.answers.tried += [draft.id or "" for draft in drafts]
        outcomes = await life.intake.schedule(drafts)
        for draft, outcome in zip(drafts, outcomes, strict=True):
            if isinstance(outcome, Receipt):
                self._accepted(outcome, life)
            if isinstance(outcome, UnknownRoute) != (draft.route == "nowhere") or (
                isinstance(outcome, InvalidMessage)
                and not isinstance(outcome, UnknownRoute)
                and outcome.field != "expires"
                and draft.priority <= 9
            ):
                self._journal.fail(BATCHES, draft.id or "", f"{outcome!r}")

    async def _burst(self, asked: Asked, chance: random.Random, life: Life) -> None:
        """All for the same moment; some of one key, some of many."""
        due = self._clock.now() + chance.choice((0, 200))
        keys = chance.choice((1, 5))
        drafts = [
            Draft(
                id=f"b{asked.number}-{place}",
                route=asked.route,
                key=f"k{chance.randrange(keys)}",
                payload=msgspec.Raw(b"{}"),
                at=format_moment(due),
            )
            for place in range(chance.choice(BURST))
        ]
        self.answers.tried += [draft.id or "" for draft in drafts]
        for outcome in await life.intake.schedule(drafts):
            if isinstance(outcome, Receipt):
                self._accepted(outcome, life)

    async def _amend(self, asked: Asked, chance: random.Random, life: Life) -> None:
        name = self._some(chance) or "nobody"
        version = chance.choice((None, None, None, 1, 2))
        accepted = name in self.answers.accepted  # an answer may take long: what was so when asked
        try:
            if asked.ask is Ask.GET:
                await life.control.get(name)
            elif asked.ask is Ask.CANCEL:
                await life.control.cancel(name, version)
                self._journal.note(life.name, "told cancelled", name)
                self.answers.cancelled.setdefault(name, self._clock.elapsed())
            elif asked.ask is Ask.RELEASE:
                self.answers.moved.add(name)
                await life.control.release(name, version)
            else:
                self.answers.moved.add(name)
                patch = Patch(delay=chance.choice(AHEAD[:-1]))
                await life.control.reschedule(life.intake.change(name, patch, version))
        except UnknownMessage:
            kept = self._plan.retention > self._plan.length * 3 and not self._clock.set_by
            if kept and accepted:
                self._journal.fail("1.5 a definite answer", name, "accepted, but unknown")
        except (AlreadyReleased, VersionConflict, InvalidMessage) as exc:
            self._journal.note(life.name, "told", name, exc.code)

    def _draft(self, asked: Asked, chance: random.Random) -> Draft:
        fields: dict[str, Any] = {}
        ahead = chance.choice(AHEAD)
        due = self._clock.now() + int(ahead * 1000)
        if chance.random() < 0.6:
            fields["delay"] = ahead
        else:
            fields["at"] = format_moment(due)
        if chance.random() < 0.15:
            fields["expires"] = format_moment(due + chance.choice((6_000, 9_000, 15_000)))
        if chance.random() < 0.3:
            fields["labels"] = Labels(channel="push", class_=chance.choice(("promo", "vital")))
        return Draft(
            id=f"m{asked.number}",
            route=chance.choice(self._plan.routes).name,
            key=f"k{chance.randint(0, 4)}",
            payload=msgspec.Raw(b'{"n": %d}' % asked.number),
            priority=chance.choice((5, 5, 0, 9)),
            **fields,
        )

    def _some(self, chance: random.Random) -> str:
        return chance.choice(self.answers.tried) if self.answers.tried else ""

    def _chance(self, asked: Asked) -> random.Random:
        return random.Random(f"{self._plan.seed}:ask:{asked.number}")


def is_open(state: State) -> bool:
    """Something has still to happen to it."""
    return state in (State.SCHEDULED, State.LEASED)
