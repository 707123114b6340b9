"""The API docs and the document they show. They work without internet."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from litestar import get
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from penstock.api.grants import Scope
from penstock.api.http.answer import Answer
from penstock.api.http.answers import HttpRequest, respond
from penstock.api.http.context import TheApi
from penstock.api.http.openapi import build_document
from penstock.model.errors import UnknownThing

OPEN = {"scope": Scope.OPEN}
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


@get("/docs", opt=OPEN)
async def page() -> ASGIResponse:
    return _static("docs.html")


@get("/static/{name:str}", opt=OPEN)
async def asset(name: FromPath[str]) -> ASGIResponse:
    if name not in ASSETS:
        raise UnknownThing("no such file")
    return _static(name)


@get("/openapi.json", opt=OPEN)
async def document(request: HttpRequest, api: TheApi) -> ASGIResponse:
    routes = api.parts.routes if request.auth.sees_details else ()
    return respond(Answer(200, build_document(routes, tokens=api.guard.needs_token), NO_CACHE))


def _static(name: str) -> ASGIResponse:
    media = MEDIA[name.rpartition(".")[2]]
    return respond(Answer(200, _content(name), PAGE_HEADERS, media))


@lru_cache(maxsize=16)
def _content(name: str) -> bytes:
    return files("penstock.api.http").joinpath("static", name).read_bytes()
