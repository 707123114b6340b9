"""What the hot way needs to know of a request that it answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from penstock.api.grants import Scope
from penstock.api.http.answer import Answer

Asked = TypeVar("Asked")
Outcome = TypeVar("Outcome")


class HotRoute(NamedTuple, Generic[Asked, Outcome]):
    """How a body becomes what is asked for, who sees to it, and its outcome an answer."""

    decode: Callable[[bytes], Asked]
    submit: Callable[[Asked, Callable[[Outcome | Exception], None]], None]
    """Calls back when it is done, or with what went wrong."""
    answer: Callable[[Outcome], Answer]
    scope: Scope = Scope.WRITE
    method: bytes = b"POST"
    message: bool = True
    """A message: it carries a trace, and is refused here and not by the ordinary way."""
    repeats: bool = True
    """Whether the same head again may be let through as it was before."""
    verb: str = "schedule"
    """What an audit line calls it; empty: it changes nothing by a token."""
    target: str = ""
    """What that line says it was done to; empty: the message's route."""
    max_body: int = 1 << 62
    """Bytes, where it is less than the setting of this name."""
    untyped: bool = False
    """Whether programs may leave the content type out."""
    admit: Callable[[], None] | None = None
    """Called before the body is read; raises what refuses the request."""
