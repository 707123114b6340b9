"""`/`: the dashboard. Its files link to each other relatively, so that any path prefix will do."""

from __future__ import annotations

from penstock.api.http.answer import Answer
from penstock.api.http.docs import CONTENT_POLICY
from penstock.api.http.request import Request
from penstock.dashboard import INDEX, dashboard_file
from penstock.model.errors import UnknownThing

HEADERS = (
    (
        "content-security-policy",
        f"{CONTENT_POLICY}; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-cache"),  # revalidated each time; unchanged, it is 304
)


async def page(request: Request) -> Answer:
    return _file(INDEX, request)


async def asset(request: Request) -> Answer:
    return _file(request.raw("file"), request)


async def view(request: Request) -> Answer:
    return _file(f"views/{request.raw('file')}", request)


def _file(name: str, request: Request) -> Answer:
    found = dashboard_file(name)
    if found is None:
        raise UnknownThing("no such file")
    headers = (*HEADERS, ("etag", found.etag))
    known = request.text("if-none-match")
    if known is not None and known.removeprefix("W/") == found.etag:
        return Answer(304, b"", headers, found.media)
    return Answer(200, found.content, headers, found.media)
