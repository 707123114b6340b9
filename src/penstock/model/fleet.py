"""A process's heartbeat: the facts it shares with the other processes on its store."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from penstock.model.lateness import Lateness

Role: TypeAlias = Literal["serve", "api", "worker", "embedded"]


class ProcessName(NamedTuple):
    """Identifies a process; `mark` tells it from an earlier one with the same number."""

    host: str
    pid: int
    mark: str

    @property
    def id(self) -> str:
        return f"{self.host}-{self.pid}-{self.mark}"


class LaneState(msgspec.Struct, frozen=True, kw_only=True):
    """A process's worker state for one route."""

    sink: str
    """The sink's address without secrets."""
    in_flight: int
    capacity: int
    waiting_for_sink: bool
    """True if the sink does not answer at all: its messages wait in the store."""
    reached: bool = True
    """True if the sink has answered since this process started."""
    lag: int = 0
    """Milliseconds the oldest due message has waited for this worker alone; 0 if it keeps up."""
    overdue: int = 0
    """Sends that have been under way for longer than the route's timeout."""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """One process at its last heartbeat, with its counts since it started."""

    id: str
    role: Role
    host: str
    pid: int
    version: str
    started: int
    seen: int
    ended: bool = False
    """True if the process stopped in order; it sends no more heartbeats."""
    metrics: str | None = None
    """The address where it serves Prometheus metrics; None if it does not."""
    routes: dict[str, LaneState] = {}
    """Its worker's state by route; empty without a worker."""
    counts: dict[str, dict[str, int]] = {}
    """Route → stage → messages."""
    lateness: dict[str, Lateness] = {}
    """Route → lateness (released - due)."""
    policies: dict[str, dict[str, int]] = {}
    """Policy → verdict → messages."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Heartbeat)


def pack(heartbeat: Heartbeat) -> bytes:
    return _encoder.encode(heartbeat)


def unpack_all(bodies: Iterable[bytes]) -> list[Heartbeat]:
    """Decode heartbeats that `pack` made; those of incompatible versions are left out."""
    found = []
    for body in bodies:
        with suppress(msgspec.MsgspecError):
            found.append(_decoder.decode(body))
    return found
