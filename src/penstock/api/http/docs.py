"""The API docs and the document they show. They work without internet."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from penstock.api.http.answer import Answer
from penstock.api.http.openapi import build_document
from penstock.api.http.request import Request
from penstock.model.errors import UnknownThing

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
NO_CACHE = (("cache-control", "no-cache"),)
PAGE_HEADERS = (
    ("content-security-policy", CONTENT_POLICY),
    ("referrer-policy", "no-referrer"),
    *NO_CACHE,
)
MEDIA = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
}
ASSETS = frozenset({"docs.js", "style.css"})


async def page(request: Request) -> Answer:
    del request
    return static_file("docs.html")


async def asset(request: Request) -> Answer:
    name = request.raw("file")
    if name not in ASSETS:
        raise UnknownThing("no such file")
    return static_file(name)


async def document(request: Request) -> Answer:
    api = request.api
    routes = api.parts.routes if request.grant.sees_details else ()
    made = build_document(routes, tokens=api.guard.needs_token, mounts=api.mounts)
    return Answer(200, made, NO_CACHE)


def static_file(name: str, headers: tuple[tuple[str, str], ...] = PAGE_HEADERS) -> Answer:
    """A page, or a file that pages load."""
    return Answer(200, _content(name), headers, MEDIA[name.rpartition(".")[2]])


@lru_cache(maxsize=16)
def _content(name: str) -> bytes:
    return files("penstock.api.http").joinpath("static", name).read_bytes()
