"""Settings of the SMS system from the environment and .env, under their established names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from penstock.model.errors import ConfigError

NAMES = (
    "RABBITMQ_HOST",
    "REDIS_HOST",
    "QUEUE_NAME",
    "MONITOR_UPDATE_INTERVAL",
    "MEAN_PROCESSING_TIME",
    "FAILURE_RATE",
)
LOG_NAMES = ("LOG_FORMAT", "SENDER_LOG_FILE", "MONITOR_LOG_FILE")
"""Log settings of its programs; they name no server."""
FORMATS = ("auto", "json", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class SmsSettings:
    """The SMS system's settings.

    Hosts are a name, host:port, or a whole URL with user and password.
    """

    rabbitmq: str = field(default="amqp://localhost:5672/", repr=False)
    redis: str = field(default="redis://localhost:6379/0", repr=False)
    queue: str = "sms_queue"
    update_interval: float = 5.0
    """Seconds between two updates of the monitor."""
    mean_processing_time: float = 0.1
    """Mean seconds that the provider takes for a message."""
    failure_rate: float = 0.1
    """Share of attempts that fail."""
    log_format: Literal["auto", "json", "text"] | None = None
    """auto: text in a terminal, JSON elsewhere. None: `[log] format` decides."""
    sender_log_file: Path | None = None
    """A sender also logs to this file, rotated."""
    monitor_log_file: Path | None = None
    """The monitor also writes its output to this file, rotated."""

    @property
    def retry_queue(self) -> str:
        """The queue in which failed messages wait for their next attempt."""
        return f"{self.queue}.retry"

    @property
    def dead_queue(self) -> str:
        """The queue of messages that failed for good."""
        return f"{self.queue}.dead"


def read_sms_settings(dotenv: Mapping[str, str | None]) -> SmsSettings:
    """The environment wins over .env; ConfigError names an invalid key."""
    given = _given(dotenv, NAMES + LOG_NAMES)
    base = SmsSettings()
    log_format = given.get("LOG_FORMAT", "").lower() or None
    if log_format not in (None, *FORMATS):
        raise ConfigError(f"LOG_FORMAT: must be one of {', '.join(FORMATS)}", field="LOG_FORMAT")
    return SmsSettings(
        rabbitmq=_url(given.get("RABBITMQ_HOST", "localhost"), ("amqp", "amqps"), 5672, "/"),
        redis=_url(given.get("REDIS_HOST", "localhost"), ("redis", "rediss"), 6379, "/0"),
        queue=given.get("QUEUE_NAME", base.queue),
        update_interval=_number(given, "MONITOR_UPDATE_INTERVAL", base.update_interval, 0.01),
        mean_processing_time=_number(given, "MEAN_PROCESSING_TIME", base.mean_processing_time, 0),
        failure_rate=_number(given, "FAILURE_RATE", base.failure_rate, 0, 1),
        log_format=cast("Literal['auto', 'json', 'text'] | None", log_format),
        sender_log_file=_file(given, "SENDER_LOG_FILE"),
        monitor_log_file=_file(given, "MONITOR_LOG_FILE"),
    )


def is_configured(dotenv: Mapping[str, str | None]) -> bool:
    """Whether any SMS setting names a server."""
    return bool(_given(dotenv, NAMES))


def _file(given: Mapping[str, str], name: str) -> Path | None:
    return Path(given[name]) if name in given else None


def _given(dotenv: Mapping[str, str | None], names: tuple[str, ...]) -> dict[str, str]:
    found = {name: os.environ.get(name) or dotenv.get(name) for name in names}
    return {name: value.strip() for name, value in found.items() if value and value.strip()}


def _url(host: str, schemes: tuple[str, ...], port: int, path: str) -> str:
    if host.startswith(tuple(f"{scheme}://" for scheme in schemes)):
        return host
    if "://" in host:
        raise ConfigError(f"a host here is a name, host:port, or {schemes[0]}://…")
    whole = host if ":" in host.rpartition("]")[2] else f"{host}:{port}"
    return f"{schemes[0]}://{whole}{path}"


def _number(
    given: Mapping[str, str], name: str, default: float, least: float, most: float = 1e9
) -> float:
    if name not in given:
        return default
    wrong = ConfigError(f"{name}: must be a number from {least:g} to {most:g}", field=name)
    try:
        value = float(given[name])
    except ValueError:
        raise wrong from None
    if not least <= value <= most:
        raise wrong
    return value
