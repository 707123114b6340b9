"""The ordinary way in: an ASGI application made of the verbs.

A path is matched as it was sent, segment by segment: `a%2Fb` is one segment, which its handler
decodes once. Where a fixed path and one with a name both match (`/v1/messages/batch`), the fixed
one answers to its methods and the other to the rest, so that every id is reachable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from penstock.api.audit import record_unsure
from penstock.api.grants import Scope
from penstock.api.http.answer import AT_ONCE, Answer, AsgiScope, Receive, Reply, Send
from penstock.api.http.auth import check_once
from penstock.api.http.context import Api
from penstock.api.http.errors import MethodNotAllowed, error_answer
from penstock.api.http.request import ClientGone, Request
from penstock.api.verbs import PAGES, VERBS, Verb, load
from penstock.model.errors import PenstockError, StoreUnavailable, UnknownThing

Handler: TypeAlias = Callable[[Request], Awaitable[Reply]]
PACKAGE = "penstock.api.http"
NO_PATH = "no such path; see /docs"
READING = frozenset({"GET", "HEAD"})


class Endpoint(NamedTuple):
    """A verb with the router's data about it."""

    verb: Verb
    handler: Handler
    scope: Scope


Methods: TypeAlias = dict[str, Endpoint]
Found: TypeAlias = tuple[Methods, tuple[str, ...]]
"""The methods of a path, and its named segments."""


class Node:
    """A place in the tree of paths with names in them."""

    __slots__ = ("below", "methods", "named")

    def __init__(self) -> None:
        self.below: dict[str, Node] = {}
        self.named: Node | None = None
        """The node after a named segment, which is never empty."""
        self.methods: Methods = {}

    def made(self, segments: list[str]) -> Node:
        """The place these segments lead to from here."""
        if not segments:
            return self
        first, *rest = segments
        if first.startswith("{"):
            self.named = self.named or Node()
            return self.named.made(rest)
        return self.below.setdefault(first, Node()).made(rest)


def build_app(api: Api) -> Router:
    """Build the router with every verb of the API, its pages, and the mounted parts."""
    mounted = [verb for mount in api.mounts for verb in mount.verbs]
    return Router(api, [*VERBS, *PAGES, *mounted])


class Router:
    """An ASGI application: finds the verb, checks who asks, calls its handler, sends the reply."""

    def __init__(self, api: Api, verbs: Iterable[Verb]) -> None:
        self._api = api
        self._fixed: dict[str, Methods] = {}
        self._named = Node()
        for verb in verbs:
            self._add(verb)

    def _add(self, verb: Verb) -> None:
        scope = Scope.OPEN if verb.scope == "visitor" else Scope[verb.scope.upper()]
        endpoint = Endpoint(verb, load(verb.handler, PACKAGE), scope)
        if not verb.in_path:
            methods = self._fixed.setdefault(verb.path, {})
        else:
            methods = self._named.made(verb.path.split("/")).methods
        methods[verb.method] = endpoint
        if verb.method == "GET" and not verb.streams:
            methods["HEAD"] = endpoint  # the server leaves out the body

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            reply = await self._reply(scope, receive)
        except ClientGone:
            return  # the client has disconnected: there is nothing to answer
        at_once = scope.get(AT_ONCE)
        if at_once is None or not isinstance(reply, Answer) or not at_once(reply):
            await reply.send(receive, send)

    async def _reply(self, scope: AsgiScope, receive: Receive) -> Reply:
        raw: list[tuple[bytes, bytes]] = scope["headers"]
        headers = dict(raw)
        method: str = scope["method"]
        path: str = scope["raw_path"].decode("latin-1")
        try:
            if len(headers) != len(raw):
                check_once(raw)
                headers = dict(reversed(raw))  # of a header that may be repeated the first counts
            self._api.guard.check_host(headers.get(b"host"), scope["http_version"])
            found = self._find(method, path)
        except PenstockError as exc:
            return error_answer(exc)
        if found is None:
            return Answer(204, b"", (("allow", self._allowed(path)),))
        endpoint, segments = found
        request = Request(self._api, endpoint.verb, segments, headers, scope, receive)
        try:
            self._permit(request, endpoint)
            return await endpoint.handler(request)
        except ClientGone:
            raise
        except Exception as exc:  # noqa: BLE001 - error_answer logs what is not ours
            if isinstance(exc, StoreUnavailable) and method not in READING:
                record_unsure(request.grant, f"{method} {path}")
            return error_answer(exc, f"{method} {path}")

    def _find(self, method: str, path: str) -> tuple[Endpoint, tuple[str, ...]] | None:
        """The verb and the named segments of its path; None: OPTIONS."""
        fixed = self._fixed.get(path)
        if fixed is not None and method in fixed:
            return fixed[method], ()
        known = False
        for methods, segments in self._matching(path):
            endpoint = methods.get(method)
            if endpoint is not None:
                return endpoint, segments
            known = True
        if not known:
            raise UnknownThing(NO_PATH)
        if method == "OPTIONS":
            return None
        raise MethodNotAllowed(self._allowed(path))

    def _matching(self, path: str) -> Iterator[Found]:
        """Yield the matches of a path: the fixed one first, then the one with names."""
        fixed = self._fixed.get(path)
        if fixed is not None:
            yield fixed, ()
        node, names = self._named, list[str]()
        for segment in path.split("/"):
            following = node.below.get(segment)
            if following is None:
                if node.named is None or not segment:
                    return
                following = node.named
                names.append(segment)
            node = following
        if node.methods:
            yield node.methods, tuple(names)

    def _allowed(self, path: str) -> str:
        """The methods of a known path; if a fixed and a named path match, those of the fixed
        one.
        """
        methods, _ = next(self._matching(path))
        return ", ".join(sorted({*methods, "OPTIONS"}))

    @staticmethod
    def _permit(request: Request, endpoint: Endpoint) -> None:
        """Check the token against the verb's scope, and the origin of writes."""
        guard, headers, needed = request.api.guard, request.headers, endpoint.scope
        authorization = headers.get(b"authorization")
        if needed is Scope.OPEN:
            request.grant = guard.grant(authorization)
        else:
            request.grant = grant = guard.check_token(authorization, needed)
            if grant.is_limited and not endpoint.verb.limited:
                grant.check_unlimited(reading=needed <= Scope.READ)
        if endpoint.verb.method != "GET":
            guard.check_origin(headers.get(b"origin"), headers.get(b"host"))
