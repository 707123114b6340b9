"""A reverse proxy that shows a server below a path, as people put one before Penstock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import ClientSession, web

_HOP = {"transfer-encoding", "content-length", "connection", "date", "server"}


@asynccontextmanager
async def below(prefix: str, server: str) -> AsyncIterator[str]:
    """The address at which `server` is found below `prefix`."""

    async def passed_on(request: web.Request) -> web.StreamResponse:
        path = request.raw_path.removeprefix(prefix)
        headers = {**request.headers, "host": request.host}
        async with session.request(
            request.method, server + path, headers=headers, data=await request.read()
        ) as answer:
            kept = {name: v for name, v in answer.headers.items() if name.lower() not in _HOP}
            passed = web.StreamResponse(status=answer.status, headers=kept)
            await passed.prepare(request)
            async for chunk in answer.content.iter_any():
                await passed.write(chunk)
            return passed

    app = web.Application()
    app.router.add_route("*", prefix + "/{rest:.*}", passed_on)
    runner = web.AppRunner(app, shutdown_timeout=1, handler_cancellation=True)
    async with ClientSession() as session:
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            yield f"http://{host}:{port}{prefix}"
        finally:
            await runner.cleanup()
