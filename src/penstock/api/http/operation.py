"""What the docs tell of one operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

Answers: TypeAlias = Mapping[int, tuple[str, str | None]]
"""Status → what it means, and the schema of its body."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one path."""

    method: Literal["get", "post", "put", "patch", "delete"]
    path: str
    name: str
    tag: str
    summary: str
    answers: Answers
    failures: tuple[int, ...] = ()
    body: str | None = None
    parameters: tuple[str, ...] = ()
    scope: Literal["open", "visitor", "metrics", "read", "write", "admin"] = "read"
    """visitor: the ticket a join returned (x-ticket) will do in place of a token."""
    media: tuple[str, ...] = ("application/json",)
    """Of answers without a schema."""
