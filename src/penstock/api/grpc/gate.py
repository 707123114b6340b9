"""Checks the token before anything else of a call is read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from grpc_health.v1 import health

from penstock.api.access import Tokens
from penstock.api.grants import Scope
from penstock.api.grpc.errors import Context, refuse
from penstock.model.errors import PenstockError

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
OPEN = f"/{health.SERVICE_NAME}/"
"""Methods that need no token: health."""


class Gate(grpc.aio.ServerInterceptor):
    """Refuses calls without a token that may read; each verb asks for the scope it needs."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        if not handler_call_details.method.startswith(OPEN):
            try:
                self._tokens.check(_authorization(handler_call_details), Scope.READ)
            except PenstockError as exc:
                return _refusing(exc)
        return await continuation(handler_call_details)


def _authorization(call: grpc.HandlerCallDetails) -> bytes | None:
    for name, value in call.invocation_metadata or ():
        if name == "authorization":
            return value if isinstance(value, bytes) else value.encode()
    return None


def _refusing(exc: PenstockError) -> Handler:
    """A handler for a call that is refused, declared as a stream so that no message is read."""

    async def behave(_: object, context: Context) -> bytes:
        await refuse(context, exc)

    return grpc.stream_unary_rpc_method_handler(behave)
