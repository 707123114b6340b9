"""An HTTP proxy before DynamoDB that throttles and fails as DynamoDB does."""

from __future__ import annotations

import random
from types import TracebackType
from typing import Literal, Self

import aiohttp
from aiohttp import web

Fault = Literal["throttle", "fail", "fail after", "away"]
_PREFIX = "com.amazonaws.dynamodb.v20120810#"


class DynamoProxy:
    """Passes requests on; a share of them, or all, meets the fault that is set.

    throttle: refused with ProvisionedThroughputExceededException. fail: a 500, and nothing was
    done. fail after: it was done, and the answer is a 500. away: the connection is cut.
    """

    def __init__(self, target: int, chance: random.Random | None = None) -> None:
        self._target = target
        self._chance = chance or random.Random(1)
        self._runner: web.AppRunner | None = None
        self._client: aiohttp.ClientSession | None = None
        self._faults: tuple[Fault, ...] = ()
        self._share = 1.0
        self.port = 0
        self.hurt = 0
        """Requests that met a fault."""

    def fault(self, *faults: Fault, share: float = 1.0) -> None:
        self._faults, self._share = faults, share

    def heal(self) -> None:
        self._faults = ()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=32 * 1024 * 1024)
        app.router.add_post("/", self._pass)
        self._client = aiohttp.ClientSession(auto_decompress=False)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        if self._client is not None:
            await self._client.close()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        fault = self._chance.choice(self._faults) if self._faults else None
        if fault is not None and self._chance.random() >= self._share:
            fault = None
        self.hurt += fault is not None
        if fault == "away":
            assert request.transport is not None
            request.transport.abort()
        if fault == "throttle":
            return _error(400, "ProvisionedThroughputExceededException")
        if fault in ("fail", "away"):
            return _error(500, "InternalServerError")
        answer = await self._forward(request, body)
        return _error(500, "InternalServerError") if fault == "fail after" else answer

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        assert self._client is not None
        headers = {k: v for k, v in request.headers.items() if k.lower() != "host"}
        url = f"http://127.0.0.1:{self._target}/"
        async with self._client.post(url, data=body, headers=headers) as answer:
            text = await answer.read()
            kept = {"Content-Type": answer.headers.get("Content-Type", "")}
            return web.Response(status=answer.status, body=text, headers=kept)


def _error(status: int, word: str) -> web.Response:
    return web.json_response({"__type": _PREFIX + word, "message": word}, status=status)
