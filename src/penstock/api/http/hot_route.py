"""The definition of a route that is answered the hot way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from penstock.api.grants import Scope
from penstock.api.http.answer import Answer

Asked = TypeVar("Asked")
Outcome = TypeVar("Outcome")


class HotRoute(NamedTuple, Generic[Asked, Outcome]):
    """Decodes a body into a request, submits it, and renders its outcome as an answer."""

    decode: Callable[[bytes], Asked]
    submit: Callable[[Asked, Callable[[Outcome | Exception], None]], None]
    """Calls back with the outcome or the error."""
    answer: Callable[[Outcome], Answer]
    scope: Scope = Scope.WRITE
    method: bytes = b"POST"
    message: bool = True
    """A message: it carries a trace, and is refused here and not by the ordinary way."""
    repeats: bool = True
    """Whether the same head may be accepted again without checks."""
    verb: str = "schedule"
    """The verb of its audit line; empty: it changes nothing by a token."""
    target: str = ""
    """The object of its audit line; empty: the message's route."""
    max_body: int = 1 << 62
    """Bytes, where it is less than the setting of this name."""
    untyped: bool = False
    """Whether programs may leave out the content type."""
    admit: Callable[[], None] | None = None
    """Called before the body is read; raises to refuse the request."""
