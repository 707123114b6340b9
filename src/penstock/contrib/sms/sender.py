"""A sender: takes messages from the queue and sends them through a simulated provider.

A message is acknowledged only when its outcome is counted in Redis and, where it failed, RabbitMQ
has confirmed its copy for the next attempt. A sender that dies in between leaves the message to
another, which asks the count whether that attempt is over. It then acknowledges the message: the
copy is safe, because it leaves the retry queue only when the first queue has confirmed it.

Senders move these copies themselves: each consumes the retry queue, holds what it gets until it is
due, publishes it to the first queue and acknowledges it then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
import uuid
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from aio_pika.abc import (
    AbstractChannel,
    AbstractConnection,
    AbstractIncomingMessage,
    AbstractQueue,
)
from aio_pika.exceptions import AMQPError, ChannelInvalidStateError

from penstock.contrib.sms.producer import Sms
from penstock.contrib.sms.queues import connect, declare, declare_retry, publish
from penstock.contrib.sms.settings import SmsSettings
from penstock.contrib.sms.stats import Outcome, SmsStats
from penstock.sim.errors import Unreachable

log = logging.getLogger("penstock.sms")

ATTEMPT = "x-attempt"
SPENT = "x-spent-us"
ERROR = "x-error"
RETRY_AT = "x-retry-at-ms"
"""When the next attempt is due, in milliseconds since the epoch."""
HELD = 200
"""Most messages that one sender holds until their next attempt is due."""
HOLD = 600.0
"""Most seconds for which it holds one; RabbitMQ closes a consumer's channel after 30 minutes."""
AGAIN = 0.5
"""Seconds between tries while Redis is unavailable or RabbitMQ refuses a message."""

Provider = Callable[[Sms], Awaitable[bool]]
"""Sends one message; the answer is whether it succeeded."""

_decode = msgspec.json.Decoder(Sms).decode


def simulated_provider(settings: SmsSettings, chance: random.Random) -> Provider:
    """A provider with exponentially distributed durations and a share of failures."""

    async def send(_sms: Sms) -> bool:
        mean = settings.mean_processing_time
        await asyncio.sleep(chance.expovariate(1 / mean) if mean else 0)
        return chance.random() >= settings.failure_rate

    return send


class Sender:
    """One consumer of the queue, with one message at a time by default."""

    def __init__(
        self,
        settings: SmsSettings,
        stats: SmsStats,
        provider: Provider,
        *,
        name: str = "sender",
        max_attempts: int = 3,
        retry_ms: int = 1_000,
        at_once: int = 1,
    ) -> None:
        self._settings = settings
        self._stats = stats
        self._provider = provider
        self._name = name
        self._max_attempts = max_attempts
        self._retry_ms = retry_ms
        self._at_once = at_once
        self._under_way = 0
        self.handled_at = time.monotonic()
        """When it last handled a message."""
        self.sent = 0
        """Number of messages sent."""

    async def run(self, stopping: asyncio.Event, ready: Callable[[], None] = lambda: None) -> None:
        """Run until `stopping`, and finish the current work. `ready` is called once it consumes."""
        connection = await connect(self._settings, self._name)
        async with connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=self._at_once)
            queue = await declare(channel, self._settings)
            self._channel: AbstractChannel = channel
            retries = await self._retry_queue(connection)
            moving = await retries.consume(partial(self._move, stopping=stopping))
            tag = await queue.consume(self._handle)
            log.info("%s waits for messages in %s", self._name, self._settings.queue)
            ready()
            await stopping.wait()
            await queue.cancel(tag)
            await retries.cancel(moving)
            while self._under_way:  # noqa: ASYNC110 - handlers are aio-pika's tasks, not ours
                await asyncio.sleep(0.01)

    async def _retry_queue(self, connection: AbstractConnection) -> AbstractQueue:
        """The retry queue on a channel of its own, so that it does not use up the prefetch."""
        self._retry_channel: AbstractChannel = await connection.channel()
        await self._retry_channel.set_qos(prefetch_count=HELD)
        return await declare_retry(self._retry_channel, self._settings)

    @property
    def idle_seconds(self) -> float:
        return 0.0 if self._under_way else time.monotonic() - self.handled_at

    async def _handle(self, message: AbstractIncomingMessage) -> None:
        await self._until_done(message, self._work(message))

    async def _move(self, message: AbstractIncomingMessage, stopping: asyncio.Event) -> None:
        await self._until_done(message, self._move_when_due(message, stopping))

    async def _until_done(self, message: AbstractIncomingMessage, work: Awaitable[None]) -> None:
        self._under_way += 1
        try:
            await work
        except (AMQPError, ChannelInvalidStateError) as exc:
            log.warning(
                "%s gives a message back to RabbitMQ, which delivers it again: %s", self._name, exc
            )
            await _give_back(message)
        finally:
            self._under_way -= 1
            self.handled_at = time.monotonic()

    async def _move_when_due(
        self, message: AbstractIncomingMessage, stopping: asyncio.Event
    ) -> None:
        """Move it to the first queue when due. At a stop it is left to the next sender."""
        seconds = _number(message, RETRY_AT) / 1000 - time.time()
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, HOLD)):
                    await stopping.wait()
                return
        if not _is_ours(message):
            return  # the connection was lost meanwhile: it is redelivered
        if seconds > HOLD:
            await message.nack(requeue=True)
            return
        queue, headers = self._settings.queue, message.headers
        await publish(
            self._retry_channel, queue, message.body, message_id=message.message_id, headers=headers
        )
        await message.ack()

    async def _work(self, message: AbstractIncomingMessage) -> None:
        attempt = _number(message, ATTEMPT) + 1
        # A copy for another attempt may exist twice: it was moved, and not acknowledged.
        again = message.redelivered or attempt > 1
        if again and await self._is_over(message.message_id, attempt):
            await message.ack()
            return
        try:
            sms = _decode(message.body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            await self._reject(message, str(exc))
            return
        start = time.perf_counter_ns()
        sent = await self._provider(sms)
        spent = _number(message, SPENT) + (time.perf_counter_ns() - start) // 1_000
        if sent:
            outcome = Outcome.SENT
        elif attempt < self._max_attempts:
            outcome = Outcome.RETRIED
            await self._pass_on(message, self._settings.retry_queue, attempt, spent)
        else:
            outcome = Outcome.FAILED
            why = f"failed {attempt} times"
            await self._pass_on(message, self._settings.dead_queue, attempt, spent, why)
        await self._count(outcome, message.message_id, attempt, spent)
        self.sent += sent
        await message.ack()
        log.info(
            "%s %s",
            outcome.value,
            sms.phone_number,
            extra={"id": message.message_id, "attempt": attempt, "ms": spent // 1_000},
        )

    async def _reject(self, message: AbstractIncomingMessage, why: str) -> None:
        """Move a message that is no SMS to the dead queue, where it does not block others."""
        await self._pass_on(message, self._settings.dead_queue, 0, 0, f"not an SMS: {why}")
        await self._count(Outcome.REJECTED, message.message_id, 0, 0)
        await message.ack()
        log.warning("not an SMS, moved to %s: %s", self._settings.dead_queue, why)

    async def _pass_on(
        self,
        message: AbstractIncomingMessage,
        queue: str,
        attempt: int,
        spent: int,
        why: str | None = None,
    ) -> None:
        """Publish it to another queue: for good with a reason, else until the next attempt."""
        headers = {**message.headers, ATTEMPT: attempt, SPENT: spent}
        if why is not None:
            headers[ERROR] = why
        else:
            headers[RETRY_AT] = int(time.time() * 1000) + self._retry_ms
        await publish(
            self._channel, queue, message.body, message_id=message.message_id, headers=headers
        )

    async def _count(
        self, outcome: Outcome, message_id: str | None, attempt: int, spent: int
    ) -> None:
        send = uuid.uuid4().hex
        await self._until_redis_has(
            lambda: self._stats.count(outcome, message_id, attempt, spent, send)
        )

    async def _is_over(self, message_id: str | None, attempt: int) -> bool:
        return await self._until_redis_has(lambda: self._stats.counted(message_id, attempt))

    async def _until_redis_has(self, ask: Callable[[], Awaitable[bool]]) -> bool:
        """Call until Redis has answered: no new message is taken meanwhile."""
        while True:
            try:
                return await ask()
            except Unreachable as exc:
                log.warning("%s", exc.message)
                await asyncio.sleep(AGAIN)


def _is_ours(message: AbstractIncomingMessage) -> bool:
    """Whether it can be acknowledged; without its channel, RabbitMQ redelivers it."""
    try:
        return not message.channel.is_closed
    except ChannelInvalidStateError:
        return False


async def _give_back(message: AbstractIncomingMessage) -> None:
    """Requeue it after a pause: RabbitMQ refused its next queue."""
    await asyncio.sleep(AGAIN)
    if _is_ours(message) and not message.processed:
        with contextlib.suppress(AMQPError, ChannelInvalidStateError):
            await message.nack(requeue=True)


def _number(message: AbstractIncomingMessage, header: str) -> int:
    value = message.headers.get(header, 0)
    return value if isinstance(value, int) else 0
