"""Rooms and tickets as they look on the wire."""

from __future__ import annotations

import msgspec

from penstock.model.errors import InvalidMessage, Unauthorized
from penstock.model.room import DEFAULT_LANE
from penstock.model.ticket import MAX_INSTANCE
from penstock.model.wire import read_json


class JoinIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    user: str
    lane: str = DEFAULT_LANE
    instance: str | None = None
    """Where the visitor is connected; passed on with the promotion."""


class HeartbeatIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    user: str


class EnterIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    token: str


_join = msgspec.json.Decoder(JoinIn)
_heartbeat = msgspec.json.Decoder(HeartbeatIn)
_enter = msgspec.json.Decoder(EnterIn)


def decode_join(body: bytes) -> JoinIn:
    return read_json(_join, body)


def check_join(asked: JoinIn) -> JoinIn:
    """InvalidMessage for an instance that cannot be passed on."""
    instance = asked.instance
    if instance is not None and not (1 <= len(instance) <= MAX_INSTANCE and instance.isprintable()):
        raise InvalidMessage("instance", f"must be 1-{MAX_INSTANCE} printable characters")
    return asked


def check_public_join(asked: JoinIn) -> None:
    """Raise Unauthorized for fields that a caller without a token may not set."""
    if asked.lane != DEFAULT_LANE or asked.instance is not None:
        raise Unauthorized("a lane or an instance is for a service with a token to name")


def decode_heartbeat(body: bytes) -> HeartbeatIn:
    return read_json(_heartbeat, body)


def decode_enter(body: bytes) -> EnterIn:
    return read_json(_enter, body)
