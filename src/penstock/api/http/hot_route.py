"""What the hot way needs to know of a request that it answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from penstock.api.access import Scope
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
