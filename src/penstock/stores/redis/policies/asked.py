"""The messages of a call about policies, column by column: most of them have most in common."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import compress, groupby
from typing import NamedTuple, TypeAlias

from penstock.model.decision import Subject
from penstock.redis_kit.runner import Plan
from penstock.stores.redis.messages.ids import pack_ids
from penstock.stores.redis.policies.compiled import Numbers

DECIDE, REFUSE, LOOK, RELEASE, COMMIT, KEEP = range(6)
"""What is to be done about a message."""
MARK_BYTES = 16

Kind: TypeAlias = tuple[int, int, int]
"""What is to be done, KEEP: until when, what is known (`ready` of shared.lua)."""


class Work(NamedTuple):
    """One message in a call."""

    subject: Subject
    numbers: Numbers
    what: int
    until: int = 0
    """KEEP: hold the place until then."""
    ready: int = 0
    more: Plan | int = 0
    """See shared.lua."""


class Asked:
    """What is asked about some messages: of all the same, unless `kinds` says it of each."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        numbers: Sequence[Numbers],
        kind: Kind,
        kinds: Sequence[Kind] | None = None,
        more: Sequence[Plan | int] | None = None,
    ) -> None:
        self.subjects = subjects
        self.numbers = numbers
        self.marks: Sequence[bytes] = _marks_of([subject.id for subject in subjects])
        self.more = more
        self.plans = {id(one): one for one in numbers}
        """The distinct ones: messages of one plan share theirs."""
        self._kind = kind
        self._kinds = kinds

    @classmethod
    def of(cls, works: Sequence[Work]) -> Asked:
        return cls(
            [work.subject for work in works],
            [work.numbers for work in works],
            (LOOK, 0, 0),
            [(work.what, work.until, work.ready) for work in works],
            [work.more for work in works] if any(work.more for work in works) else None,
        )

    def only(self, plans: set[int]) -> Asked:
        """What is asked about the messages of these plans (by their `id`)."""
        if len(plans) == len(self.plans):
            return self
        wanted = [id(one) in plans for one in self.numbers]
        some = Asked((), (), self._kind)
        some.subjects = list(compress(self.subjects, wanted))
        some.numbers = list(compress(self.numbers, wanted))
        some.marks = list(compress(self.marks, wanted))
        some.plans = {plan: self.plans[plan] for plan in self.plans if plan in plans}
        some._kinds = None if self._kinds is None else list(compress(self._kinds, wanted))
        return some

    @property
    def writes(self) -> bool:
        kinds: Iterable[Kind] = (self._kind,) if self._kinds is None else self._kinds
        return any(kind[0] != LOOK for kind in kinds)

    def runs(self, places: Sequence[int]) -> tuple[list[Numbers], Plan]:
        """The plans of the messages at these places, and { what, plan, until, ready, how many in a
        row … } of them."""
        if self._kinds is None and len(self.plans) == 1:
            what, until, ready = self._kind
            return [*self.plans.values()], [what, 1, until, ready, len(places)]
        known: dict[int, int] = {}
        each = []
        for place in places:
            plan = known.setdefault(id(self.numbers[place]), len(known) + 1)
            each.append((plan, self._kind if self._kinds is None else self._kinds[place]))
        runs: Plan = []
        for (plan, (what, until, ready)), same in groupby(each):
            runs += (what, plan, until, ready, len(list(same)))
        return [self.plans[one] for one in known], runs


def _marks_of(ids: Sequence[str]) -> list[bytes]:
    """Ids in 16 bytes each: a UUID's own, or a digest that no other id of the key has."""
    return [
        packed if len(packed) == MARK_BYTES else hashlib.md5(packed, usedforsecurity=False).digest()
        for packed in pack_ids(ids)
    ]
