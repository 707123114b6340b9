"""`/v1/routes`: list the routes with their state, pause and resume them.

Handlers; the verb of each is in `penstock.api.verbs`.
"""

from __future__ import annotations

from penstock.api.http.answer import Answer, json_answer
from penstock.api.http.request import Request
from penstock.model.status_view import PausedOut, RoutesOut


async def list_routes(request: Request) -> Answer:
    within = request.grant.routes
    found = await request.api.status.routes()
    return json_answer(RoutesOut([r for r in found if within is None or r.name in within]))


async def set_paused(request: Request) -> Answer:
    """`pause` and `resume`."""
    api, name, word = request.api, request.arg("name"), request.verb.word
    request.grant.check_whole_route(name)
    await api.status.check_route(name)
    await api.parts.control.pause(name, word == "pause")
    api.audit.record(request.grant, word, f"route {name}")
    return json_answer(PausedOut(name, word == "pause"))
