"""Makes decisions as a sender's decision maker does, and publishes them in batches.

Every third batch is DEFER, one in ten BLOCK, one in twenty DROP, all others ALLOW. A few
notifications have several receivers, a few have expired, and a tenth goes to the few busy
receivers, for whom frequency caps exist.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.flow.observe import Observer
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, Dead
from penstock.ports.sink import Sink
from penstock.sim.errors import Unreachable

log = logging.getLogger("penstock.sim")

STAGE = "decided"
AT_ONCE = 50
"""Batches that await the broker's confirmation together."""
TURN = 0.02
"""Seconds between two rounds of publishing."""
AGAIN = 0.2
"""Seconds until unconfirmed batches are published again."""
PATIENCE = 30.0
"""Seconds to wait for the broker, at the start and at the end."""
LIFE = 3 * 86_400
"""Seconds until a notification expires: longer than policies hold one back. What a cap makes wait
until after midnight may find quiet hours there, and waits until the end of that day.
"""
TYPES = ("social", "promotional", "transactional")
WEIGHTS = (65, 15, 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The batches to publish."""

    rate: float | None = 50.0
    """Notifications per second; None for as many as the broker accepts."""
    items: int = 20
    """Notifications in a batch."""
    count: int | None = None
    """Stop after this many notifications; None runs until stopped."""
    defer: float = 3.0
    """Longest deferral of a DEFER in seconds; the shortest is half of it."""
    receivers: int = 100_000
    busy: int = 10
    """Number of receivers who get a tenth of everything."""
    method: str = "sendPush"
    process: str = "sim"
    """The process that each batch names."""
    each: bool = False
    """Record every notification, for the totals."""


class Decided(msgspec.Struct, frozen=True):
    """One notification in the totals."""

    id: str
    verdict: str
    type: str
    receivers: list[str]
    may_go: int
    """Epoch milliseconds before which it must not be sent."""
    expired: bool
    """True if it expires before it may be sent."""


class Totals(msgspec.Struct, kw_only=True):
    """The batches and notifications that the broker has confirmed."""

    batches: int = 0
    items: int = 0
    verdicts: dict[str, int] = {}
    """Verdict → notifications."""
    several: int = 0
    """Notifications with more than one receiver."""
    expired: int = 0
    repeated: int = 0
    """Batches published again because their confirmation was missing."""
    unknown: int = 0
    """Batches that the broker may or may not have."""
    each: list[Decided] | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    message: Message
    verdict: str
    decided: Sequence[Decided]


class DecisionMaker:
    """Publishes batches until it is stopped; each counts once the broker has confirmed it."""

    def __init__(
        self,
        plan: Plan,
        sink: Sink,
        observer: Observer,
        *,
        chance: random.Random | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._plan = plan
        self._sink = sink
        self._observer = observer
        self._chance = chance or random.Random()
        self._now = now
        self._run = f"{self._chance.getrandbits(40):010x}"
        """Part of every id: it differs between runs."""
        self._made = 0
        self._stopping = asyncio.Event()
        self._verdicts: Counter[str] = Counter()
        self.totals = Totals(each=[] if plan.each else None)

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> Totals:
        """Run until stop() or the count is reached, and all batches are confirmed.

        Raises Unreachable if the broker does not answer.
        """
        await self._wait_for_broker()
        began = time.monotonic()
        while not self._stopping.is_set() and not self._enough:
            due = self._due(time.monotonic() - began)
            if due:
                await self._publish([self._batch() for _ in range(due)])
            else:
                await asyncio.sleep(TURN)
        self.totals.verdicts = dict(sorted(self._verdicts.items()))
        return self.totals

    @property
    def _enough(self) -> bool:
        return self._plan.count is not None and self._made * self._plan.items >= self._plan.count

    def _due(self, elapsed: float) -> int:
        """Number of batches to publish now."""
        rate = self._plan.rate
        due = AT_ONCE if rate is None else int(elapsed * rate / self._plan.items) + 1 - self._made
        left = AT_ONCE
        if self._plan.count is not None:
            left = -(-self._plan.count // self._plan.items) - self._made
        return max(0, min(due, left, AT_ONCE))

    async def _wait_for_broker(self) -> None:
        deadline = time.monotonic() + PATIENCE
        is_reported = False
        while not self._stopping.is_set():
            try:
                await self._sink.check()
            except Exception as exc:
                if time.monotonic() >= deadline:
                    raise Unreachable(str(exc)) from exc
                if not is_reported:
                    log.info("waiting for the broker of the decisions: %s", exc)
                    is_reported = True
                await asyncio.sleep(AGAIN)
            else:
                return

    async def _publish(self, batches: Sequence[Batch]) -> None:
        """Publish until the broker has confirmed all batches: it may crash and return."""
        left = list(batches)
        deadline: float | None = None
        while left:
            outcomes = await self._sink.send([batch.message for batch in left])
            again: list[Batch] = []
            for batch, outcome in zip(left, outcomes, strict=True):
                if outcome == DELIVERED:
                    self._count(batch)
                elif isinstance(outcome, Dead):
                    raise Unreachable(f"the broker refuses a batch: {outcome.error}")
                else:
                    again.append(batch)
            left = again
            if left:
                self.totals.repeated += len(left)
                if self._stopping.is_set():
                    deadline = deadline or time.monotonic() + PATIENCE
                    if time.monotonic() >= deadline:
                        self.totals.unknown += len(left)
                        return
                await asyncio.sleep(AGAIN)

    def _count(self, batch: Batch) -> None:
        totals = self.totals
        totals.batches += 1
        totals.items += len(batch.decided)
        self._verdicts[batch.verdict] += len(batch.decided)
        totals.several += sum(len(one.receivers) > 1 for one in batch.decided)
        totals.expired += sum(one.expired for one in batch.decided)
        if totals.each is not None:
            totals.each += batch.decided
        self._observer.count(STAGE, "", len(batch.decided))

    def _batch(self) -> Batch:
        self._made += 1
        number = self._made
        verdict = verdict_of(number)
        now = self._now()
        ahead = self._plan.defer * self._chance.uniform(0.5, 1)
        tta = int(now + ahead) + 1 if verdict == "DEFER" else int(now)
        decided, items = [], []
        for index in range(self._plan.items):
            one = self._decided(f"{self._run}-{number}-{index}", verdict, now, tta)
            decided.append(one)
            items.append(self._item(one, now, tta))
        body: dict[str, Any] = {
            "process": self._plan.process,
            "order": number,
            "decision": verdict,
            "tta": tta,
            "notify_msg": items,
        }
        message = Message(
            id=f"{self._run}-{number}",
            route="decisions",
            key=f"{self._run}-{number}",
            payload=msgspec.json.encode(body),
            due=int(now * 1000),
            attempt=1,
        )
        return Batch(message, verdict, decided)

    def _decided(self, name: str, verdict: str, now: float, tta: int) -> Decided:
        chance = self._chance
        return Decided(
            id=name,
            verdict=verdict,
            type=chance.choices(TYPES, WEIGHTS)[0],
            receivers=self._receivers(),
            may_go=tta * 1000 if verdict == "DEFER" else int(now * 1000),
            expired=chance.random() < 0.04,
        )

    def _receivers(self) -> list[str]:
        chance, plan = self._chance, self._plan
        number = chance.choice((2, 3)) if chance.random() < 0.1 else 1
        found = [f"user-{chance.randrange(plan.receivers)}" for _ in range(number)]
        if plan.busy and chance.random() < 0.1:
            found[chance.randrange(number)] = f"busy-{chance.randrange(plan.busy)}"
        return list(dict.fromkeys(found))

    def _item(self, one: Decided, now: float, tta: int) -> dict[str, Any]:
        expires = int(now) + LIFE
        if one.expired:
            expires = tta - 1 if one.verdict == "DEFER" else int(now) - 3600
        return {
            "id": one.id,
            "emissionDate": int(now),
            "name": "spring",
            "originator": "sim",
            "priority": 5,
            "data": {
                "method": self._plan.method,
                "params": {
                    "type": one.type,
                    "portal": "main",
                    "renderParams": {"name": one.receivers[0]},
                    "receivers": one.receivers,
                    "templateName": "hello",
                    "expireDate": expires,
                },
            },
        }


def verdict_of(number: int) -> str:
    """The verdict of the batch of this number, counted from 1."""
    if number % 3 == 0:
        return "DEFER"
    if number % 20 == 5:
        return "DROP"
    return "BLOCK" if number % 10 == 8 else "ALLOW"
