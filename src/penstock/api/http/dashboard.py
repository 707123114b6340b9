"""`/`: the dashboard. Its files link to each other relatively, so that any path prefix will do."""

from __future__ import annotations

from litestar import get
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from penstock.api.grants import Scope
from penstock.api.http.answer import Answer
from penstock.api.http.answers import HttpRequest, respond
from penstock.api.http.auth import header
from penstock.api.http.docs import CONTENT_POLICY
from penstock.dashboard import INDEX, dashboard_file
from penstock.model.errors import UnknownThing

OPEN = {"scope": Scope.OPEN}
HEADERS = (
    (
        "content-security-policy",
        f"{CONTENT_POLICY}; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-cache"),  # asked for again each time; unchanged, it is 304
)


@get("/", opt=OPEN)
async def page(request: HttpRequest) -> ASGIResponse:
    return _answer(INDEX, request)


@get("/ui/{name:str}", opt=OPEN)
async def asset(name: FromPath[str], request: HttpRequest) -> ASGIResponse:
    return _answer(name, request)


@get("/ui/views/{name:str}", opt=OPEN)
async def view(name: FromPath[str], request: HttpRequest) -> ASGIResponse:
    return _answer(f"views/{name}", request)


def _answer(name: str, request: HttpRequest) -> ASGIResponse:
    found = dashboard_file(name)
    if found is None:
        raise UnknownThing("no such file")
    headers = (*HEADERS, ("etag", found.etag))
    known = header(request.scope["headers"], b"if-none-match")
    if known is not None and known.decode("latin-1").removeprefix("W/") == found.etag:
        return respond(Answer(304, b"", headers, found.media))
    return respond(Answer(200, found.content, headers, found.media))
