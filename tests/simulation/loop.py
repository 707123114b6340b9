"""An event loop without a selector, whose time jumps to the next timer when nothing is ready.

Every callback belongs to a process (by its context) or to the world around them. A process that
is frozen gets none of its callbacks until it is thawed; one that is dead gets no more time.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")

MAX_TURNS_AT_ONCE = 3_000
"""Turns of the loop in which time does not move: more is a busy loop, not work."""
_SLACK = 1e-9
_PRUNE_FROM = 256


class BusyLoop(Exception):
    """The code under test goes round and round without ever waiting."""


class Stuck(Exception):
    """Nobody will ever be woken again."""


class Owner:
    """Whoever callbacks belong to: the loop asks it before it runs them."""

    def __init__(self) -> None:
        self.frozen = False
        self.dead = False
        self.held: list[asyncio.Handle] = []
        self.tasks: dict[asyncio.Task[Any], None] = {}
        """In order of their creation: whatever goes through them must not depend on chance."""
        self.fuse = 0
        """After so many callbacks `blow` is called: a crash between any two awaits."""
        self.blow: Callable[[], None] = lambda: None

    def ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)


OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("owner", default=None)


class VirtualLoop(asyncio.BaseEventLoop):
    """Deterministic: the same callbacks in the same order at the same moments, every time."""

    # What asyncio's own base keeps, and this loop works on.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _timer_cancelled_count: int

    def __init__(self) -> None:
        super().__init__()
        self._virtual = 0.0
        self._turns_now = 0
        self.world = contextvars.copy_context()
        self.world.run(OWNER.set, None)
        self.set_task_factory(_make_task)

    def time(self) -> float:
        return self._virtual

    # --- the world's own

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that belongs to no process."""
        return self.create_task(work, context=self.world.copy())

    def later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """A timer that belongs to no process."""
        return self.call_later(seconds, callback, context=self.world.copy())

    def calm_down(self) -> None:
        """Begin to count turns anew: after a busy loop there is still something to tidy up."""
        self._turns_now = 0

    def thaw(self, owner: Owner) -> None:
        owner.frozen = False
        self._ready.extend(owner.held)
        owner.held.clear()

    # --- what asyncio's base calls; its own checks (debug mode, other threads) are left out

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        setattr(timer, "_scheduled", True)  # noqa: B010 - typeshed does not know it
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._virtual + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        self._collect_due()
        ready = self._ready
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            owner = handle._context.get(OWNER)  # type: ignore[attr-defined]  # not in typeshed
            if owner is not None:
                if owner.frozen:
                    owner.held.append(handle)
                    continue
                if owner.fuse:
                    owner.fuse -= 1
                    if not owner.fuse:
                        owner.blow()
            handle._run()

    def _collect_due(self) -> None:
        timers = self._scheduled
        if len(timers) > _PRUNE_FROM and self._timer_cancelled_count * 2 > len(timers):
            timers[:] = [timer for timer in timers if not timer.cancelled()]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0].cancelled():
            self._pop_timer()
            self._timer_cancelled_count -= 1
        if not self._ready and not timers:
            raise Stuck("nothing is ready and nobody waits for a moment")
        if self._ready or timers[0].when() <= self._virtual:
            self._turns_now += 1
            if self._turns_now > MAX_TURNS_AT_ONCE:
                raise BusyLoop(f"no time passes at {self._virtual:.3f} s")
        else:
            self._virtual = timers[0].when()
            self._turns_now = 0
        end = self._virtual + _SLACK
        while timers and timers[0].when() <= end:
            self._ready.append(self._pop_timer())

    def _pop_timer(self) -> asyncio.TimerHandle:
        timer = heapq.heappop(self._scheduled)
        setattr(timer, "_scheduled", False)  # noqa: B010 - typeshed does not know it
        return timer

    def _process_events(self, event_list: object) -> None:
        """There is no selector."""

    def _write_to_self(self) -> None:
        """There are no threads to wake the loop from."""


def _make_task(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, T] | Generator[Any, None, T],
    context: contextvars.Context | None = None,
) -> asyncio.Task[T]:
    task: asyncio.Task[T] = asyncio.Task(work, loop=loop, context=context)
    owner = OWNER.get() if context is None else context.get(OWNER)
    if owner is not None:
        owner.tasks[task] = None
        task.add_done_callback(owner.ended)
        if owner.dead:
            task.cancel()
    return task
