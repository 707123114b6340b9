"""Figures of the SMS system in Redis: exact with any number of senders, even after a crash.

One script counts an attempt and marks it, so that a message redelivered because its sender died
between counting and acknowledging is not counted twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib.resources import files
from typing import cast

import msgspec
from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import RedisError

from penstock.sim.errors import Unreachable

FIGURES = "penstock:sms:{%s}"
MARKS = "penstock:sms:{%s}:counted:%s"
MARK_SECONDS = 86_400
CONNECTIONS = 8
"""Most connections of one process; a caller that finds none free waits."""


class Outcome(StrEnum):
    SENT = "sent"
    RETRIED = "retried"  # this attempt failed, another follows
    FAILED = "failed"  # this attempt failed and was the last
    REJECTED = "rejected"  # not a valid message


class SmsFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures. Only finished messages count as sent or failed."""

    sent: int = 0
    failed: int = 0
    attempts: int = 0
    retried: int = 0
    rejected: int = 0
    repeated: int = 0
    """Sends of finished messages: RabbitMQ or a sender died in between."""
    spent_us: int = 0

    @property
    def success_rate(self) -> float | None:
        ended = self.sent + self.failed
        return self.sent / ended if ended else None

    @property
    def average_seconds(self) -> float | None:
        """Mean time of a message with the provider, all its attempts together."""
        ended = self.sent + self.failed
        return self.spent_us / ended / 1e6 if ended else None


class SmsStats:
    """The figures of one queue."""

    def __init__(self, redis: Redis, queue: str) -> None:
        self._redis = redis
        self._queue = queue
        self._count = redis.register_script(
            files("penstock.contrib.sms").joinpath("count.lua").read_text(encoding="utf-8")
        )

    @classmethod
    def at(cls, url: str, queue: str) -> SmsStats:
        pool = BlockingConnectionPool.from_url(
            url, max_connections=CONNECTIONS, timeout=None, decode_responses=True
        )
        return cls(Redis.from_pool(pool), queue)

    async def count(
        self,
        outcome: Outcome,
        message_id: str | None,
        attempt: int,
        spent_us: int,
        send: str = "",
    ) -> bool:
        """Count an attempt; False if it had been counted. After Unreachable it is safe to repeat.

        `send` identifies this one send of the attempt, so that a call repeated after a lost answer
        differs from an SMS that was sent twice.
        """
        keys = [FIGURES % self._queue, MARKS % (self._queue, message_id or "")]
        keep = MARK_SECONDS if message_id else 0
        with _redis_errors():
            return bool(await self._count(keys, [keep, attempt, outcome, spent_us, send]))

    async def counted(self, message_id: str | None, attempt: int) -> bool:
        """Whether this attempt was counted: then it is over, and only not acknowledged."""
        if message_id is None:
            return False
        with _redis_errors():
            marks = MARKS % (self._queue, message_id)
            return bool(await self._redis.hexists(marks, str(attempt)))

    async def read(self) -> SmsFigures:
        with _redis_errors():
            reading = self._redis.hgetall(FIGURES % self._queue)
            figures = await cast("Awaitable[dict[str, str]]", reading)
        return msgspec.convert(figures, SmsFigures, strict=False)

    async def reset(self) -> None:
        """Set the figures to 0; attempts that were counted stay marked."""
        with _redis_errors():
            await self._redis.delete(FIGURES % self._queue)

    async def close(self) -> None:
        await self._redis.aclose()


@contextmanager
def _redis_errors() -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError) as exc:
        raise Unreachable(f"Redis does not answer: {exc}") from exc
