"""Calls to DynamoDB: bounded, retried if that may help, raising only Penstock's errors."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from aiobotocore.config import AioConfig  # type: ignore[import-untyped] # it has no types
from aiobotocore.session import get_session  # type: ignore[import-untyped] # as above

from penstock.model.errors import StoreUnavailable
from penstock.redis_kit.breaker import Breaker
from penstock.stores.dynamodb.address import Address
from penstock.stores.dynamodb.errors import (
    CONDITION_EXCEPTION,
    FAULTS,
    THROTTLED,
    Vendor,
    code_of,
    is_away,
    translate,
)

log = logging.getLogger("penstock.stores.dynamodb")

Reply: TypeAlias = Mapping[str, Any]
"""botocore's answers are untyped; each caller reads the fields it knows."""

FIRST_WAIT = 0.025
LONGEST_WAIT = 1.0
SLOW_SECONDS, SLOW_TIMES = 0.25, 3
"""An answer that takes longer than this, and this many times as long as the quickest one, means
that fewer calls should be under way."""
WAY_SECONDS, LONGEST_WAY = 300.0, 0.5
"""How long the quickest answer counts, up to twice as long; and the longest that the way to the
server is taken to be."""
LOWERED_TO = 0.7
"""A slow answer lowers the limit of calls under way to this part of it …"""
FEWEST_SLOTS = 2
"""… and never below this."""
URGENT_CONNECTIONS = 8
"""Connections beside those of the slots: urgent calls do not wait in the pool either."""


class Answer(NamedTuple):
    """The answer, and whether an earlier try of the same call may have taken effect too."""

    reply: Reply
    repeated: bool


class Patience:
    """Growing waits with jitter, up to a time limit."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._wait = FIRST_WAIT

    async def again(self) -> bool:
        """Wait a little longer than the last time; False once the limit is reached."""
        wait = random.uniform(self._wait / 2, self._wait)
        if time.monotonic() + wait > self._end:
            return False
        self._wait = min(LONGEST_WAIT, self._wait * 2)
        await asyncio.sleep(wait)
        return True


PUT, PLANT = "put", "plant"
ADDING = (PUT, PLANT)
"""Lines of calls that add work."""
_line: ContextVar[str] = ContextVar("penstock_dynamodb_line", default="")


@contextmanager
def line(name: str) -> Iterator[None]:
    """The line that calls made herein wait in."""
    token = _line.set(name)
    try:
        yield
    finally:
        _line.reset(token)


class Slots:
    """How many calls are under way at once: fewer while the server answers slowly.

    More calls than a server can work on only wait there, before the calls of other processes and
    of the leases that must be extended meanwhile. The calls of each kind of step wait in a line of
    their own, and the lines take turns: a claim does not wait for all the writes of a large put.
    What adds work leaves a slot to what gets it done: else messages were put and never sent.
    """

    def __init__(self, most: int, timer: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._limit = float(most)
        self._timer = timer
        self._under_way = 0
        self._adding = 0
        """Of these, calls that add work."""
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        """The waiting calls by line; the line whose turn it is comes first."""
        self._least = self._least_before = math.inf
        """Seconds of the quickest answer, since then and in the time before: what the way to the
        server takes."""
        self._least_since = 0.0
        self._lowered_at = 0.0

    @property
    def limit(self) -> int:
        return int(self._limit)

    @asynccontextmanager
    async def one(self, *, urgent: bool = False) -> AsyncIterator[None]:
        """Wait for a slot, unless it is urgent; and learn from how long the answer took."""
        name = _line.get()
        if urgent or (name not in self._lines and self._is_free(name)):
            self._take(name)
        else:
            await self._turn(name)
        began = self._timer()
        answered = False
        try:
            yield
            answered = True
        finally:
            self.ended(began, self._timer(), answered=answered)
            self._release(name)

    def ended(self, began: float, ended: float, *, answered: bool) -> None:
        """Learn from a call; a failed or cancelled one shows at most that the server is slow.

        Calls that were begun before the limit was lowered say nothing of the lower one.
        """
        took = ended - began
        if answered:
            self._note_way(took, ended)
        if took > max(SLOW_SECONDS, SLOW_TIMES * self._way):
            if began >= self._lowered_at:
                self._limit = max(min(FEWEST_SLOTS, self._most), self._limit * LOWERED_TO)
                self._lowered_at = ended
        elif answered:
            self._limit = min(self._most, self._limit + 1 / self._limit)

    @property
    def _way(self) -> float:
        return min(self._least, self._least_before, LONGEST_WAY)

    def _note_way(self, took: float, now: float) -> None:
        if now - self._least_since >= WAY_SECONDS:
            self._least_before, self._least, self._least_since = self._least, math.inf, now
        self._least = min(self._least, took)

    def _is_free(self, name: str) -> bool:
        """Whether a call of that line may begin."""
        if name in ADDING and self._adding >= max(1, self.limit - 1):
            return False
        return self._under_way < self.limit

    def _take(self, name: str) -> None:
        self._under_way += 1
        self._adding += name in ADDING

    async def _turn(self, name: str) -> None:
        """Wait in line for a slot, which is handed over."""
        turn = asyncio.get_running_loop().create_future()
        self._lines.setdefault(name, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(name)
            raise

    def _release(self, name: str) -> None:
        self._under_way -= 1
        self._adding -= name in ADDING
        while (following := next(filter(self._is_free, self._lines), None)) is not None:
            waiting = self._lines.pop(following)
            turn = waiting.popleft()
            if waiting:
                self._lines[following] = waiting
            if not turn.done():  # else it was cancelled
                self._take(following)
                turn.set_result(None)


class Gateway:
    """One client of one table's server; created by `open_gateway`."""

    def __init__(self, client: Any, address: Address, closing: AsyncExitStack) -> None:
        self._client = client
        self._name = address.name
        self._timeout = address.timeout
        self._closing = closing
        self._slots = Slots(address.options.max_connections)
        self._breaker = Breaker()

    @property
    def name(self) -> str:
        return self._name

    def patience(self) -> Patience:
        return Patience(self._timeout)

    async def asks(self, operation: str, **request: Any) -> Reply | None:
        """Call once for something that may not exist at all; None if it does not."""
        try:
            reply: Reply = await getattr(self._client, operation)(**request)
        except Vendor as exc:
            log.debug("no %s at %s: %s", operation, self._name, exc)
            return None
        return reply

    async def call(self, operation: str, *, urgent: bool = False, **request: Any) -> Answer:
        """Call with retries; an unmet condition is an answer too.

        An `urgent` call does not wait for others of this process.
        """
        if (wait := self._breaker.wait()) > 0:
            raise StoreUnavailable(self._breaker.reason, retry_after=wait)
        patience = self.patience()
        repeated = False
        while True:
            try:
                async with self._slots.one(urgent=urgent):
                    reply = await self._ask(operation, request)
            except Vendor as exc:
                code = code_of(exc)
                unsure = code in FAULTS or is_away(exc)
                repeated = repeated or unsure
                if (unsure or code in THROTTLED) and await patience.again():
                    continue
                pause = self._breaker.failed() if unsure else LONGEST_WAIT
                error = translate(exc, self._name, pause)
                if unsure:
                    self._breaker.reason = error.message
                raise error from exc
            self._breaker.succeeded()
            return Answer(reply, repeated)

    async def _ask(self, operation: str, request: Mapping[str, Any]) -> Reply:
        try:
            reply: Reply = await getattr(self._client, operation)(**request)
        except Vendor as exc:
            if code_of(exc) != CONDITION_EXCEPTION:
                raise
            return {"Refused": True}
        return reply

    async def close(self) -> None:
        await self._closing.aclose()


@lru_cache(maxsize=1)
def _session() -> Any:
    """The process's session: reading the service's description takes half a second."""
    return get_session()


async def open_gateway(address: Address) -> Gateway:
    """Create a gateway; sends nothing yet."""
    options = address.options
    config = AioConfig(
        connect_timeout=address.connect_timeout,
        read_timeout=address.timeout / 2,  # a call that hangs is repeated once
        max_pool_connections=options.max_connections + URGENT_CONNECTIONS,
        retries={"total_max_attempts": 1},  # this module retries
        parameter_validation=False,  # requests are built here, and checking them takes longer
    )
    stack = AsyncExitStack()
    try:
        client = await stack.enter_async_context(
            _session().create_client(
                "dynamodb",
                endpoint_url=address.endpoint,
                region_name=address.region,
                aws_access_key_id=address.key,
                aws_secret_access_key=address.secret,
                config=config,
            )
        )
    except Vendor as exc:
        await stack.aclose()
        raise translate(exc, address.name, LONGEST_WAIT) from exc
    return Gateway(client, address, stack)
