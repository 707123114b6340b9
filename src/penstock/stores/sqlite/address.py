"""A sqlite:// URL, read once; and a store to try things in, beside the one that it names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from penstock.model.errors import ConfigError, StoreUnavailable

_OPTIONS = {"writer": ("loop", "thread"), "synchronous": ("full", "normal")}


@dataclass(frozen=True, slots=True)
class Address:
    """The path of the database and the way it is written."""

    path: Path | None
    """None: in memory."""
    writer: Literal["loop", "thread"] = "loop"
    """The committer: the event loop inline, or a thread (for disks with a slow fsync)."""
    synchronous: Literal["full", "normal"] = "full"
    """full survives a power cut; normal only a crash of the process."""

    @property
    def name(self) -> str:
        return "sqlite://" if self.path is None else f"sqlite:///{self.path}"


def parse_address(url: str) -> Address:
    """sqlite:///relative.db · sqlite:////absolute.db · sqlite:// and sqlite:///:memory:"""
    parts = urlsplit(url)
    if parts.netloc:
        raise ConfigError(
            f"store: {url!r} needs three slashes before a relative path (sqlite:///penstock.db)"
            " and four before an absolute one"
        )
    if parts.fragment:
        raise ConfigError(f"store: {url!r}: write # in a path as %23")
    options = _options(parts.query)
    text = unquote(parts.path.removeprefix("/"))
    path = None if text in {"", ":memory:"} else Path(text)
    return Address(
        path,
        writer="thread" if options.get("writer") == "thread" else "loop",
        synchronous="normal" if options.get("synchronous") == "normal" else "full",
    )


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(options.keys() - _OPTIONS.keys())
    if unknown:
        known = ", ".join(sorted(_OPTIONS))
        raise ConfigError(f"store: no such option: {', '.join(unknown)}; there are: {known}")
    for name, value in options.items():
        if value not in _OPTIONS[name]:
            raise ConfigError(f"store: {name} must be one of {', '.join(_OPTIONS[name])}")
    return options


def scratch_url(url: str, mark: str) -> str:
    """The same settings on a new file in the same folder; in memory: another one."""
    path = parse_address(url).path
    if path is None:
        return url
    query = urlsplit(url).query
    beside = quote(str(path.with_name(f"{path.stem}-{mark}{path.suffix}")))
    return f"sqlite:///{beside}" + (f"?{query}" if query else "")


async def erase(url: str) -> None:
    """Remove the file and those that SQLite keeps beside it; StoreUnavailable names what
    remains.
    """
    path = parse_address(url).path
    if path is None:
        return
    for ending in ("", "-wal", "-shm", "-lock", "-unsynced"):
        file = path.with_name(path.name + ending)
        try:
            file.unlink(missing_ok=True)
        except OSError as exc:
            raise StoreUnavailable(
                f"{file} is left behind and may be removed: {exc.strerror}"
            ) from exc
