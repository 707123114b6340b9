"""What one process tells the others on the same store about itself."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from penstock.model.lateness import Lateness

Role: TypeAlias = Literal["serve", "api", "worker", "embedded"]


class ProcessName(NamedTuple):
    """Which process it is; `mark` tells it from an earlier one with the same number."""

    host: str
    pid: int
    mark: str

    @property
    def id(self) -> str:
        return f"{self.host}-{self.pid}-{self.mark}"


class LaneState(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is doing for one route."""

    sink: str
    """Without secrets."""
    in_flight: int
    capacity: int
    waiting_for_sink: bool
    """The sink does not answer at all: its messages wait in the store."""
    reached: bool = True
    """The sink has answered since this process started."""
    lag: int = 0
    """Milliseconds that the oldest message waits for this worker alone; 0: it keeps up."""
    overdue: int = 0
    """Sends that have been under way for longer than the route's timeout."""


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """One process as it was when it was last seen, with all it counted since it started."""

    id: str
    role: Role
    host: str
    pid: int
    version: str
    started: int
    seen: int
    ended: bool = False
    """It stopped in order; nothing more will come."""
    metrics: str | None = None
    """Where it serves Prometheus; None: nowhere."""
    routes: dict[str, LaneState] = {}
    """What its worker is doing; empty without one."""
    counts: dict[str, dict[str, int]] = {}
    """Route → stage → messages."""
    lateness: dict[str, Lateness] = {}
    """Route → released - due."""
    policies: dict[str, dict[str, int]] = {}
    """Policy → verdict → messages."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Heartbeat)


def pack(heartbeat: Heartbeat) -> bytes:
    return _encoder.encode(heartbeat)


def unpack_all(bodies: Iterable[bytes]) -> list[Heartbeat]:
    """What `pack` made; what a version of other fields made is left out."""
    found = []
    for body in bodies:
        with suppress(msgspec.MsgspecError):
            found.append(_decoder.decode(body))
    return found
