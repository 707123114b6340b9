"""Every error Penstock raises on purpose, in one tree.

PenstockError
├── InvalidMessage        422  a field of a message is wrong
│   └── UnknownRoute      422  no such route here
├── Malformed             400  not even readable (JSON, NDJSON line, cursor …)
├── TooLarge              413  payload or body past the limit
├── UnknownMessage        404  no message of that id
├── UnknownThing          404  no such route, path …
├── AlreadyReleased       409  too late to change it
├── VersionConflict       412  If-Match named another version
├── Unauthorized          401  no token, or a wrong one
│   └── InvalidToken      401  an invalid or void entry token
├── TokenUsed             409  an entry token that was redeemed before
├── RoomClosed            409  visitors may no longer join this room
├── TicketTaken           409  this name has a ticket, and the caller did not show it
├── Forbidden             403  a token without the scope, or another origin
├── Overloaded            429  too much at once; try again
├── StoreUnavailable      503  the store is away; nothing was accepted
│   ├── PartlyUnavailable 503  a part of the store is away; the others have answered
│   ├── StoreFailed       503  the store cannot be trusted any more: the process must end
│   └── NotStored         503  the store failed with an unexpected error
├── SinkUnavailable       503  the other side of a route cannot be reached
├── SourceUnavailable     503  the broker messages come from cannot be reached
├── NoRoom                507  the server has no room to keep an answer for its caller
├── StoreCorrupt          500  the store answered nonsense
├── Unreachable           (client) no server answered at its address
├── ServerFault           (client) a server answered what it should not
└── ConfigError           exit 2  settings that cannot work

Each carries a stable `code`, a message for people and, where it fits, the `field`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from penstock.model.state import State

MAX_NAME = 100
"""Characters of a caller's own text that an error repeats."""


def shortened(text: str, most: int = MAX_NAME) -> str:
    """A caller's text, cut so that an error's length does not depend on it."""
    return text if len(text) <= most else f"{text[:most]}…"


class PenstockError(Exception):
    """The root: catch this to catch everything Penstock raises on purpose."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidMessage(PenstockError):
    """A field cannot be accepted; `field` names it and the message says what would be."""

    code = "invalid"

    def __init__(self, field: str, reason: str) -> None:
        field = shortened(field)
        super().__init__(f"{field}: {reason}", field=field)
        self.reason = reason


class UnknownRoute(InvalidMessage):
    """The route is not configured here."""

    code = "unknown_route"

    def __init__(self, route: str, known: tuple[str, ...] = ()) -> None:
        listed = ", ".join(sorted(known)[:10])
        if len(known) > 10:
            listed += f" and {len(known) - 10} more"
        hint = f"; known here: {listed}" if listed else ""
        super().__init__("route", f"no route named {route[:100]!r}{hint}")


class Malformed(PenstockError):
    """The input could not be read at all."""

    code = "malformed"


class TooLarge(PenstockError):
    """A payload or body is past its limit."""

    code = "too_large"


class PutRefused(PenstockError):
    """Some messages of a put cannot be stored; the others are.

    `outcomes` has one entry per message, in order: its receipt or its own error.
    """

    code = "refused"

    def __init__(self, outcomes: Sequence[object]) -> None:
        super().__init__("some of the messages cannot be stored")
        self.outcomes = outcomes


class UnknownMessage(PenstockError):
    """No message with this id exists (never accepted, or purged after the retention time)."""

    code = "not_found"

    def __init__(self, message_id: str) -> None:
        super().__init__(
            f"no message with id {message_id!r} (never accepted, or kept no longer)", field="id"
        )
        self.message_id = message_id


class UnknownThing(PenstockError):
    """The named thing does not exist on this server."""

    code = "not_found"


class AlreadyReleased(PenstockError):
    """Too late: the message was sent, or is being sent right now."""

    code = "already_released"

    def __init__(self, message_id: str, state: str, *, cancel_pending: bool = False) -> None:
        how = "is being released right now" if state == "leased" else f"is already {state}"
        super().__init__(f"message {message_id!r} {how}", field="id")
        self.message_id = message_id
        self.state = state
        self.cancel_pending = cancel_pending


class VersionConflict(PenstockError):
    """The message, or the rule, has another version than the caller expected."""

    code = "version_conflict"

    def __init__(self, message_id: str, version: int, *, kind: str = "message") -> None:
        super().__init__(
            f"{kind} {message_id!r} is at version {version}, not at the one given", field="version"
        )
        self.message_id = message_id
        self.version = version


class Unauthorized(PenstockError):
    """The credentials are missing or wrong."""

    code = "unauthorized"


class InvalidToken(Unauthorized):
    """The entry token is forged, expired, void or of another room."""

    code = "invalid_token"


class TokenUsed(PenstockError):
    """The entry token was redeemed before."""

    code = "token_used"


class RoomClosed(PenstockError):
    """The room is closed: visitors may no longer join."""

    code = "room_closed"


class TicketTaken(PenstockError):
    """A visitor of this name already has a ticket, and the caller did not present it."""

    code = "ticket_taken"


class Forbidden(PenstockError):
    """The credentials do not cover this request."""

    code = "forbidden"


class Overloaded(PenstockError):
    """The server has too much to do at once; `retry_after` is in seconds."""

    code = "overloaded"

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoreUnavailable(PenstockError):
    """The store cannot write or answer now; nothing of the call was accepted."""

    code = "store_unavailable"

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class PartlyUnavailable(StoreUnavailable):
    """A part of the store cannot answer now; `answers` has the other parts' answers by index."""

    def __init__(self, message: str, answers: Mapping[int, State | None]) -> None:
        super().__init__(message)
        self.answers = answers


class StoreFailed(StoreUnavailable):
    """The store refuses every call until the process is restarted.

    A call under way when it failed may have been stored: repeat it with the same id.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after=5.0)


class NotStored(StoreUnavailable):
    """The store failed with an unexpected error: the store or the message is at fault."""


class SinkUnavailable(PenstockError):
    """A route's receiver cannot be reached; its messages wait in the store."""

    code = "sink_unavailable"


class SourceUnavailable(PenstockError):
    """The broker that messages come from cannot be reached; they wait there."""

    code = "source_unavailable"


class NoRoom(PenstockError):
    """The server has no space for the answer; the message says what was stored."""

    code = "no_room"


class StoreCorrupt(PenstockError):
    """The store contains data that Penstock did not write."""

    code = "store_corrupt"


class Unreachable(PenstockError):
    """No server answered; the request may or may not have taken effect, and may be repeated."""

    code = "unreachable"


class ServerFault(PenstockError):
    """The server failed, or the answer is not Penstock's; `status` is the HTTP or gRPC status."""

    code = "server_fault"

    def __init__(self, message: str, *, status: int, field: str | None = None) -> None:
        super().__init__(message, field=field)
        self.status = status


class ConfigError(PenstockError):
    """Settings that cannot work; the message says which and what to do."""

    code = "config"

    def __init__(
        self, message: str, *, field: str | None = None, problems: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, field=field)
        self.problems = problems or (message,)

    @classmethod
    def of(cls, problems: list[str]) -> ConfigError:
        """One error that lists all the problems."""
        return cls("bad settings:\n  " + "\n  ".join(problems), problems=tuple(problems))


def missing_extra(subject: str, extra: str) -> ConfigError:
    """The error of a part whose client library is missing; it says how to install it."""
    return ConfigError(
        f"{subject} needs the {extra!r} extra: pip install 'penstock-engine[{extra}]'"
    )
