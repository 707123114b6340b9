"""Calls to DynamoDB: bounded, retried if that may help, raising only Penstock's errors."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
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


class Gateway:
    """One client of one table's server; created by `open_gateway`."""

    def __init__(self, client: Any, address: Address, closing: AsyncExitStack) -> None:
        self._client = client
        self._name = address.name
        self._timeout = address.timeout
        self._closing = closing
        self._slots = asyncio.Semaphore(address.options.max_connections)
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

    async def call(self, operation: str, **request: Any) -> Answer:
        """Call with retries; an unmet condition is an answer too."""
        if (wait := self._breaker.wait()) > 0:
            raise StoreUnavailable(self._breaker.reason, retry_after=wait)
        patience = self.patience()
        repeated = False
        while True:
            try:
                async with self._slots:
                    reply: Reply = await getattr(self._client, operation)(**request)
            except Vendor as exc:
                code = code_of(exc)
                if code == CONDITION_EXCEPTION:
                    self._breaker.succeeded()
                    return Answer({"Refused": True}, repeated)
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
        max_pool_connections=options.max_connections,
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
