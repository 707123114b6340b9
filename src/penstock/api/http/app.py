"""The ordinary way in: Litestar behind a small front that all requests pass."""

from __future__ import annotations

import re
from functools import cache

from litestar import Litestar, Response
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.types import ASGIApp, HTTPScope, Receive, Send

from penstock.api.audit import record_unsure
from penstock.api.grants import Scope
from penstock.api.http import (
    actuator,
    batch,
    bulk,
    dashboard,
    dead,
    docs,
    health,
    messages,
    policies,
    room_page,
    rooms,
    routes,
    stats,
    ticks,
)
from penstock.api.http.answer import Answer
from penstock.api.http.answers import HttpRequest, respond
from penstock.api.http.auth import check_once, header
from penstock.api.http.context import Api, ClientGone
from penstock.api.http.errors import MethodNotAllowed, error_answer
from penstock.model.errors import Malformed, PenstockError, StoreUnavailable, UnknownThing

HANDLERS: list[HTTPRouteHandler] = [
    messages.create_message,
    batch.create_messages,
    messages.list_messages,
    messages.get_message,
    messages.change_message,
    messages.cancel_message,
    messages.release_message,
    messages.redrive_message,
    bulk.cancel_messages,
    bulk.release_messages,
    bulk.reschedule_messages,
    dead.group_dead,
    dead.redrive_dead,
    dead.delete_dead,
    dead.forget_key,
    routes.list_routes,
    routes.pause_route,
    routes.resume_route,
    policies.list_policies,
    policies.get_policy,
    policies.put_policy,
    policies.drop_policy,
    policies.list_suppressions,
    policies.get_suppression,
    policies.put_suppression,
    policies.drop_suppression,
    policies.suppress_key,
    policies.unsuppress_key,
    policies.explain,
    policies.counters,
    stats.stats,
    stats.events,
    stats.history,
    stats.room_history,
    stats.forecast,
    stats.metrics,
    rooms.list_rooms,
    rooms.put_room,
    rooms.get_room,
    rooms.join_room,
    rooms.get_ticket,
    rooms.watch_ticket,
    rooms.leave_room,
    rooms.revoke_ticket,
    rooms.heartbeat,
    rooms.enter_room,
    *rooms.STATE_CHANGES,
    rooms.reset_room,
    room_page.page,
    room_page.asset,
    actuator.health,
    actuator.metrics,
    actuator.metric,
    actuator.prometheus,
    health.healthz,
    health.readyz,
    ticks.create_tick,
    ticks.healthy,
    dashboard.page,
    dashboard.asset,
    dashboard.view,
    docs.page,
    docs.asset,
    docs.document,
]
NO_PATH = "no such path; see /docs"
READING = frozenset({"GET", "HEAD"})
_STREAM = re.compile(r"/v1/events|/v1/rooms/[^/]+/tickets/[^/]+/events")
"""These do not end by themselves, so that they have no HEAD."""
_WORDS_IN_PLACE_OF_AN_ID = frozenset(
    f"/v1/messages/{word}" for word in ("batch", "cancel", "release", "reschedule")
)


API = "penstock.api"
"""Where a request's scope has the Api it came to."""


def build_app(api: Api) -> Front:
    """Every route, and one shape for whatever goes wrong on any of them."""
    return Front(_router(), api)


@cache
def _router() -> Litestar:
    """One per process: it takes longer to build than a server takes to start."""
    return Litestar(
        HANDLERS,
        dependencies={"api": Provide(_api, sync_to_thread=False)},
        guards=[_permit],
        exception_handlers={Exception: _failed, HTTPException: _failed},
        openapi_config=None,
        request_max_body_size=None,  # read_body and the batch have limits of their own
        logging_config=None,
        signature_types=[Api],
    )


def _api(request: HttpRequest) -> Api:
    api: Api = request.scope[API]  # type: ignore[literal-required] # ASGI lets a scope carry more
    return api


class Front:
    """Sees every request first: the host it came to, and its path as it was sent."""

    def __init__(self, app: ASGIApp, api: Api) -> None:
        self._app = app
        self._api = api

    async def __call__(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        try:
            check_once(scope["headers"])
            host = header(scope["headers"], b"host")
            self._api.guard.check_host(host, scope["http_version"])
            _check_path(scope["raw_path"])
        except PenstockError as exc:
            await respond(error_answer(exc))(scope, receive, send)
            return
        if scope["method"] == "OPTIONS" and (allow := allowed(scope["raw_path"])):
            await respond(Answer(204, b"", (("allow", allow),)))(scope, receive, send)
            return
        try:
            await self._app(self._routed(scope), receive, send)
        except ClientGone:
            return  # nothing to answer, nobody to answer to

    def _routed(self, scope: HTTPScope) -> HTTPScope:
        routed = _raw(scope)
        routed[API] = self._api  # type: ignore[literal-required] # see _api
        return routed


def _check_path(path: bytes) -> None:
    """Refuse what Litestar would take for a shorter path: a proxy's rules would not."""
    if b"//" in path or (path.endswith(b"/") and path != b"/"):
        raise UnknownThing(NO_PATH)


def _raw(scope: HTTPScope) -> HTTPScope:
    """Route on the raw path: `a%2Fb` is one segment, and is decoded once, by `path_id`.

    Under another method than POST, `batch`, `cancel` … are ids like any other. HEAD is GET; the
    server leaves out the body, since the scope it keeps still says HEAD.
    """
    path = scope["raw_path"].decode("latin-1")
    method = scope["method"]
    if path in _WORDS_IN_PLACE_OF_AN_ID and method != "POST":
        head, _, word = path.rpartition("/")
        path = f"{head}/%{ord(word[0]):02x}{word[1:]}"
    changed = scope.copy()
    changed["path"] = path
    if method == "HEAD" and _STREAM.fullmatch(path) is None:
        changed["method"] = "GET"
    return changed


def allowed(raw_path: bytes) -> str:
    """The methods a path answers to; empty when there is no such path."""
    path = raw_path.decode("latin-1")
    matching = [pattern for pattern in _PATHS if pattern.fullmatch(path)]
    exact = [pattern for pattern in matching if pattern.pattern == re.escape(path)]
    methods = {method for pattern in exact or matching for method in _PATHS[pattern]}
    if "GET" in methods and _STREAM.fullmatch(path) is None:
        methods.add("HEAD")
    return ", ".join(sorted(methods | {"OPTIONS"})) if methods else ""


_PATHS: dict[re.Pattern[str], set[str]] = {}
for _handler in HANDLERS:
    for _path in _handler.paths:
        _pattern = re.sub(r"\\{\w+:str\\}", "[^/]+", re.escape(_path))
        _PATHS.setdefault(re.compile(_pattern), set()).update(_handler.http_methods)


def _permit(
    connection: ASGIConnection[BaseRouteHandler, object, object, State], handler: BaseRouteHandler
) -> None:
    """A Litestar guard: the handler's scope, or the method's, and the origin of writes."""
    guard = connection.scope[API].guard  # type: ignore[literal-required] # see _api
    headers = connection.scope["headers"]
    reading = connection.scope["method"] in READING  # type: ignore[typeddict-item]
    needed = handler.opt.get("scope", Scope.READ if reading else Scope.WRITE)
    authorization = header(headers, b"authorization")
    if needed is Scope.OPEN:
        grant = guard.grant(authorization)
    else:
        grant = guard.check_token(authorization, needed)
        if grant.is_limited and not handler.opt.get("limited"):
            grant.check_unlimited(reading=needed <= Scope.READ)
    connection.scope["auth"] = grant
    if not reading:
        guard.check_origin(header(headers, b"origin"), header(headers, b"host"))


def _failed(request: HttpRequest, exc: Exception) -> Response[bytes]:
    if isinstance(exc, ClientGone):
        raise exc
    method = request.scope["method"]
    if isinstance(exc, StoreUnavailable) and method not in READING:
        record_unsure(request.auth, f"{method} {request.scope['path']}")
    answer = error_answer(_translated(request, exc))
    return Response(
        answer.body,
        status_code=answer.status,
        headers=dict(answer.all_headers),
    )


def _translated(request: HttpRequest, exc: Exception) -> Exception:
    """What Litestar itself refuses, in our words: unknown paths and methods."""
    if not isinstance(exc, HTTPException) or exc.status_code >= 500:
        return exc
    if exc.status_code == 404:
        return UnknownThing(NO_PATH)
    if exc.status_code == 405:
        return MethodNotAllowed(allowed(request.scope["raw_path"]))
    return Malformed(exc.detail)
