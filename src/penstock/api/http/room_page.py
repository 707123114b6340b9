"""`/rooms/{room}`: the page a visitor is shown while waiting. It works without internet."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from litestar import get
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from penstock.api.grants import Scope
from penstock.api.http.answer import Answer
from penstock.api.http.answers import respond
from penstock.api.http.docs import CONTENT_POLICY, MEDIA, PAGE_HEADERS
from penstock.model.errors import UnknownThing

ASSETS = frozenset({"room.js", "room.css", "room-line.js", "room-words.js"})
OPEN = {"scope": Scope.OPEN}
HEADERS = (
    ("content-security-policy", CONTENT_POLICY.replace("form-action 'none'", "form-action 'self'")),
    *(each for each in PAGE_HEADERS if each[0] != "content-security-policy"),
)
"""The way in is a form: the entry token is posted to a place on the same site."""


@get("/rooms/{room:str}", opt=OPEN)
async def page(room: FromPath[str]) -> ASGIResponse:
    """The same page for every room: who is in which line is asked by the page itself."""
    del room
    return _static("room.html")


@get("/rooms-static/{name:str}", opt=OPEN)
async def asset(name: FromPath[str]) -> ASGIResponse:
    if name not in ASSETS:
        raise UnknownThing("no such file")
    return _static(name)


def _static(name: str) -> ASGIResponse:
    return respond(Answer(200, _content(name), HEADERS, MEDIA[name.rpartition(".")[2]]))


@lru_cache(maxsize=8)
def _content(name: str) -> bytes:
    return files("penstock.api.http").joinpath("static", name).read_bytes()
