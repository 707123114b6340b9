"""One bad item hurts no other: a failed batch is halved until the bad item is alone.

Every batch that may fail because of one of its items goes through here: puts into a store, sends to
a sink, dead letters, transactions shared by several callers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

PATIENCE = 8
"""Items that may fail alone, while none passes, before the failure counts as common to all."""


def halves(part: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """The first and the second half of two items or more."""
    middle = len(part) // 2
    return part[:middle], part[middle:]


class Isolation(Generic[T]):
    """The parts of a batch that are still to be tried, in the order of the batch.

    If nothing passes at all, no single item is at fault: after a few items that failed alone,
    larger parts are no longer halved, so that a receiver that is down costs only a few calls.
    """

    def __init__(self, *parts: Sequence[T]) -> None:
        self._parts = list(reversed(parts))
        self._failed_alone = 0
        self.has_passed = False
        """True once an item was accepted: an item that fails now is itself at fault."""

    def take(self, limit: int = 1) -> list[Sequence[T]]:
        """The next parts, at most `limit`; empty when all have been tried."""
        return [self._parts.pop() for _ in range(min(limit, len(self._parts)))]

    def passed(self) -> None:
        """Record that a part was accepted."""
        self.has_passed = True

    def again(self, part: Sequence[T]) -> None:
        """Retry next a part from which the bad items were removed."""
        self._parts.append(part)

    def split(self, part: Sequence[T]) -> bool:
        """Halve a part that failed; False if it is the bad item itself."""
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

    An error in `shared` concerns the whole batch: the part that raised it is not halved. `failed`
    is the error of an attempt that the caller has already made. `results` is filled on the way, for
    a caller that may be cancelled.
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
