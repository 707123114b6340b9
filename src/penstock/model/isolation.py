"""One bad item hurts no other: a batch that fails is halved until the item to blame is alone.

Every batch that may fail because of one of its items goes through here: puts into a store, sends to
a sink, dead letters, transactions shared by several callers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

PATIENCE = 8
"""Items that fail alone, while nothing passes, until the failure is taken for that of all."""


def halves(part: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """The first and the second half of two items or more."""
    middle = len(part) // 2
    return part[:middle], part[middle:]


class Isolation(Generic[T]):
    """The parts of a batch that are still to be tried, in the order of the batch.

    Where nothing at all passes, it is not one item's fault: after a few items that failed alone
    the larger parts are not halved any more, so that a receiver that is away costs a few calls.
    """

    def __init__(self, *parts: Sequence[T]) -> None:
        self._parts = list(reversed(parts))
        self._failed_alone = 0
        self.has_passed = False
        """Something was accepted: what fails is to blame itself."""

    def take(self, limit: int = 1) -> list[Sequence[T]]:
        """The next parts, at most `limit`; none: all have been tried."""
        return [self._parts.pop() for _ in range(min(limit, len(self._parts)))]

    def passed(self) -> None:
        """A part was accepted."""
        self.has_passed = True

    def again(self, part: Sequence[T]) -> None:
        """Try a part next that lost its items to blame."""
        self._parts.append(part)

    def split(self, part: Sequence[T]) -> bool:
        """Halve a part that failed; False: it is to blame as it is."""
        if len(part) <= 1:
            self._failed_alone += 1
            return False
        if self._failed_alone >= PATIENCE and not self.has_passed:
            return False
        self._parts += reversed(halves(part))
        return True


async def isolate(
    batch: Sequence[T],
    attempt: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
    blame: Callable[[Exception], R],
    *,
    shared: tuple[type[Exception], ...] = (),
    failed: Exception | None = None,
    results: list[R] | None = None,
) -> list[R]:
    """Attempt a batch: one result per item, in order; `blame` makes an item's result of its error.

    An error in `shared` is never one item's: the part that raised it is not halved. `failed`: the
    batch was attempted already, and this came of it. `results` is filled on the way, for a caller
    that may be cancelled.
    """
    results = [] if results is None else results
    isolation = Isolation(batch)
    if failed is not None and not isolation.split(isolation.take()[0]):
        results.append(blame(failed))
    while parts := isolation.take():
        (part,) = parts
        try:
            results += await attempt(part)
        except Exception as exc:  # noqa: BLE001 - an error is the result of the items it belongs to
            if isinstance(exc, shared) or not isolation.split(part):
                results += [blame(exc)] * len(part)
        else:
            isolation.passed()
    return results
