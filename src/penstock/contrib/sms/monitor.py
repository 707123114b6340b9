"""The part of `penstock monitor` about the SMS system."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import msgspec

from penstock.contrib.sms.settings import is_configured, read_sms_settings
from penstock.sim.errors import client_library

if TYPE_CHECKING:
    from penstock.contrib.sms.stats import SmsFigures

NONE = "–"


class SmsLook(msgspec.Struct, frozen=True, kw_only=True):
    """The SMS figures; `failed` are messages that failed for good, attempts are counted apart."""

    queue: str
    sent: int
    failed: int
    success_rate: float | None
    """Success rate of the finished messages."""
    average_seconds: float | None
    """Mean time of a message with the provider, all its attempts together."""
    attempts: int
    retried: int
    rejected: int
    repeated: int = 0
    """Sends of messages that had already finished."""

    @property
    def name(self) -> str:
        return self.queue

    @property
    def facts(self) -> list[tuple[str, str]]:
        rate, average = self.success_rate, self.average_seconds
        return [
            ("sent", f"{self.sent:,}"),
            ("failed", f"{self.failed:,}"),
            ("success rate", NONE if rate is None else f"{rate:.1%}"),
            ("average time", NONE if average is None else f"{average:.3f} s"),
            ("attempts", f"{self.attempts:,}"),
            *([("rejected", f"{self.rejected:,}")] if self.rejected else []),
            *([("repeated", f"{self.repeated:,}")] if self.repeated else []),
        ]


def sms_look(queue: str, figures: SmsFigures) -> SmsLook:
    return SmsLook(
        queue=queue,
        sent=figures.sent,
        failed=figures.failed,
        success_rate=figures.success_rate,
        average_seconds=figures.average_seconds,
        attempts=figures.attempts,
        retried=figures.retried,
        rejected=figures.rejected,
        repeated=figures.repeated,
    )


class SmsMonitor:
    """Reads the SMS figures from the servers that the environment and .env name."""

    def __init__(self, dotenv: Mapping[str, str | None]) -> None:
        self._settings = read_sms_settings(dotenv)
        self.configured = is_configured(dotenv)
        self.update_interval = self._settings.update_interval
        self.log_file = self._settings.monitor_log_file
        self.log_format = self._settings.log_format

    async def open(self, stack: AsyncExitStack) -> Callable[[], Awaitable[SmsLook]]:
        client_library("redis", "sms")
        from penstock.contrib.sms.stats import SmsStats  # noqa: PLC0415 - needs that library

        settings = self._settings
        stats = SmsStats.at(settings.redis, settings.queue)
        stack.push_async_callback(stats.close)

        async def ask() -> SmsLook:
            return sms_look(settings.queue, await stats.read())

        return ask
