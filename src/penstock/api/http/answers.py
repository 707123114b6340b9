"""An answer as a value, so that both ways in (Litestar and the hot path) give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec
from litestar import Request
from litestar.datastructures import State
from litestar.response.base import ASGIResponse

from penstock.api.grants import Grant
from penstock.api.http.answer import Answer

JsonValue: TypeAlias = msgspec.Struct | Mapping[str, object] | Sequence[msgspec.Struct]

HttpRequest: TypeAlias = Request[object, Grant, State]
"""`auth` is whose token the request came with."""


_encoder = msgspec.json.Encoder()


def json_answer(value: JsonValue, status: int = 200, *headers: tuple[str, str]) -> ASGIResponse:
    return respond(Answer(status, _encoder.encode(value), headers))


def respond(answer: Answer) -> ASGIResponse:
    """For Litestar: the headers in the order that `render` has them too."""
    return ASGIResponse(
        status_code=answer.status,
        headers=answer.all_headers,
        body=answer.body,
    )
