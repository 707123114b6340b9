"""The headers that every sink sends beside the payload, on any wire.

Layers, the later winning: content-type → the caller's headers → the route's fixed headers →
Penstock's own. A caller cannot replace an operator's header (an Authorization, say) or forge
another message's id. Names are compared without regard to case and keep their given spelling,
because brokers tell cases apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from penstock.model.draft import check_headers
from penstock.model.message import Message
from penstock.model.times import format_moment

CONTENT_TYPE = "content-type"
ID = "penstock-id"
ATTEMPT = "penstock-attempt"
DUE = "penstock-due"
KEY = "penstock-key"
"""The header of the key on wires that have no field for it."""


class Envelope:
    """Makes the headers of one route's messages."""

    def __init__(self, fixed: Mapping[str, str]) -> None:
        """Raise InvalidMessage if a fixed header cannot be sent."""
        check_headers(dict(fixed))
        self._fixed = {_spelling(name): value for name, value in fixed.items()}
        self._taken = frozenset(name.lower() for name in fixed)

    def headers(self, message: Message) -> dict[str, str]:
        carried = {CONTENT_TYPE: message.content_type}
        if message.headers:
            for name, value in message.headers.items():
                if name.lower() not in self._taken:
                    carried[_spelling(name)] = value
        carried.update(self._fixed)
        carried[ID] = message.id
        carried[ATTEMPT] = str(message.attempt)
        carried[DUE] = format_moment(message.due)
        return carried

    def pairs(self, message: Message) -> list[tuple[str, bytes]]:
        """The headers for wires that carry bytes; fast if there are only Penstock's own."""
        if message.headers or self._fixed:
            return [(name, value.encode()) for name, value in self.headers(message).items()]
        return [
            (CONTENT_TYPE, message.content_type.encode()),
            (ID, message.id.encode()),
            (ATTEMPT, b"%d" % message.attempt),
            (DUE, format_moment(message.due).encode()),
        ]

    def all_with_fixed(self, messages: Sequence[Message]) -> list[Message]:
        """For receivers in this process: the messages with the route's fixed headers added."""
        return [self._with_fixed(m) for m in messages] if self._fixed else list(messages)

    def _with_fixed(self, message: Message) -> Message:
        own = message.headers or {}
        kept = {name: value for name, value in own.items() if name.lower() not in self._taken}
        return msgspec.structs.replace(message, headers={**kept, **self._fixed})


def _spelling(name: str) -> str:
    """Normalise the case of the one header that callers and Penstock both set."""
    return CONTENT_TYPE if name.lower() == CONTENT_TYPE else name
