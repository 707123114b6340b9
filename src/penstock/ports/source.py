"""The seam to a broker that messages are taken from.

A source is a module with `async def open_source(url: str, options: SourceOptions) -> Source`.
Opening checks the address and the options (ConfigError) and connects to nothing; the first read
does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.model.errors import ConfigError
from penstock.ports.options import Own, read_own


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """A source's settings for its driver. Its repr leaves out secrets."""

    source: str
    more: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Settings that are the driver's own."""

    def read(self, own: type[Own], query: str = "") -> Own:
        def wrong(reason: str, name: str) -> ConfigError:
            return self.wrong(reason, name or "from")

        return read_own(own, self.more, query, whose="source", wrong=wrong)

    def wrong(self, reason: str, setting: str = "from") -> ConfigError:
        """An error that names the setting."""
        where = f"sources.{self.source}.{setting}"
        return ConfigError(f"{where}: {reason}", field=where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One broker message, as it was received."""

    value: bytes
    headers: Mapping[str, str]
    key: str | None = None
    origin: str | None = None
    """Its position in the broker, the same at every redelivery; None: the broker has none."""
    handle: object = None
    """The driver's own."""


class Source(Protocol):
    """Reads records at least once: an unfinished record is redelivered, here or to another
    reader.
    """

    @property
    def name(self) -> str:
        """The source's address without secrets."""
        ...

    async def read(self, limit: int) -> Sequence[Record]:
        """The next records, at most `limit`; empty when none arrived for a while.

        Raises SourceUnavailable when the broker cannot be reached; reading again tries again.
        """
        ...

    async def done(self, records: Sequence[Record]) -> None:
        """Acknowledge these records. Records that are no longer ours are skipped silently.

        Called with everything read before the next read, in order. SourceUnavailable: they are
        redelivered.
        """
        ...

    async def hold(self, records: Sequence[Record]) -> None:
        """Called now and then while these cannot be finished: the broker must not give up on us."""
        ...

    async def check(self) -> None:
        """Raise SourceUnavailable when the broker cannot be reached; cheap."""
        ...

    async def close(self) -> None: ...
