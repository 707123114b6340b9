"""An address with one port, or with several of which the first that is free is taken."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

_RANGE = re.compile(r"(?P<host>.+):(?P<first>\d{1,5})(?:-(?P<last>\d{1,5}))?", re.ASCII)
_OFF = frozenset({"", "0", "none", "off"})


class PortRange(NamedTuple):
    host: str
    first: int
    last: int

    @property
    def ports(self) -> range:
        return range(self.first, self.last + 1)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        ports = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{host}:{ports}"


def port_range(value: Any) -> Any:
    """Convert a written range; "none", "0" and nothing become None."""
    if isinstance(value, int) and value == 0:
        return None
    if not isinstance(value, str):
        return value
    if value.strip().lower() in _OFF:
        return None
    match = _RANGE.fullmatch(value.strip())
    if match is None:
        raise ValueError('must be "host:port", "host:first-last" or "none"')
    first = int(match["first"])
    last = first if match["last"] is None else int(match["last"])
    if not first <= last <= 65_535:
        raise ValueError("ports are 0 to 65535, the first not above the last")
    return PortRange(match["host"].removeprefix("[").removesuffix("]"), first, last)
