"""`/rooms/{room}`: the page a visitor is shown while waiting. It works without internet."""

from __future__ import annotations

from penstock.api.http.answer import Answer
from penstock.api.http.docs import CONTENT_POLICY, PAGE_HEADERS, static_file
from penstock.api.http.request import Request
from penstock.model.errors import UnknownThing

ASSETS = frozenset({"room.js", "room.css", "room-line.js", "room-words.js"})
HEADERS = (
    ("content-security-policy", CONTENT_POLICY.replace("form-action 'none'", "form-action 'self'")),
    *(each for each in PAGE_HEADERS if each[0] != "content-security-policy"),
)
"""The way in is a form: the entry token is posted to a place on the same site."""


async def page(request: Request) -> Answer:
    """The same page for every room: the page itself requests the visitor's ticket."""
    del request
    return static_file("room.html", HEADERS)


async def asset(request: Request) -> Answer:
    name = request.raw("file")
    if name not in ASSETS:
        raise UnknownThing("no such file")
    return static_file(name, HEADERS)
