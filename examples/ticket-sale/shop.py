"""A shop that sells tickets to a crowd: only as many shop at once as the room lets in.

The shop makes the room, shows visitors the waiting page under its own address, redeems the tokens
they come back with, and gives their slot back when they have bought.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets

from aiohttp import ClientSession, ClientTimeout, web
from dotenv import load_dotenv

import penstock

ROOM = "sale"
COOKIE = "shopper"
# What a visitor's page needs. Everything else of Penstock stays behind the shop.
VISITORS = re.compile(
    rf"/rooms/{ROOM}|/rooms-static/[\w.-]+|/v1/rooms/{ROOM}/(join|heartbeat|tickets/[^/]+(/events)?)"
)
WAIT_HERE = f"/rooms/{ROOM}?next=/checkout"
HOP = {"connection", "content-length", "date", "server", "transfer-encoding"}


class Shop:
    """Tickets, and who is shopping."""

    def __init__(self, client: penstock.AsyncClient, gate: ClientSession, tickets: int) -> None:
        self._client = client
        self._gate = gate
        self.left = tickets
        self.shoppers: dict[str, str] = {}
        """The cookie → the user who holds a slot."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/", self.home),
            web.post("/checkout", self.checkout),
            web.get("/buy", self.offer),
            web.post("/buy", self.buy),
            web.get("/status", self.status),
            web.route("*", "/{path:.*}", self.visitor),
        ]

    async def home(self, _: web.Request) -> web.Response:
        return page(f'<h1>Tickets</h1><p>{self.left} left.</p><a href="/buy">Get one</a>')

    async def checkout(self, request: web.Request) -> web.Response:
        """A visitor whose turn has come: the token is good once, while its slot is held."""
        try:
            token = str((await request.post()).get("token", ""))
            inside = await self._client.rooms.enter(ROOM, token)
        except (penstock.InvalidToken, penstock.TokenUsed):
            raise web.HTTPSeeOther(WAIT_HERE) from None
        shopper = secrets.token_urlsafe()
        self.shoppers[shopper] = inside.user
        answer = web.HTTPSeeOther("/buy")
        answer.set_cookie(COOKIE, shopper, httponly=True, samesite="Lax")
        raise answer

    async def offer(self, request: web.Request) -> web.Response:
        user = self.shoppers.get(request.cookies.get(COOKIE, ""))
        if user is None:
            raise web.HTTPSeeOther(WAIT_HERE)
        await self._client.rooms.heartbeat(ROOM, user)  # still shopping
        return page(f'<h1>{self.left} left</h1><form method="post"><button>Buy</button></form>')

    async def buy(self, request: web.Request) -> web.Response:
        user = self.shoppers.pop(request.cookies.get(COOKIE, ""), None)
        if user is None:
            raise web.HTTPSeeOther(WAIT_HERE)
        sold = self.left > 0
        self.left -= sold
        await self._client.rooms.leave(ROOM, user)  # the next one comes in
        return page("<h1>Enjoy the show</h1>" if sold else "<h1>Sold out</h1>")

    async def status(self, _: web.Request) -> web.Response:
        return web.json_response({"left": self.left, "shopping": len(self.shoppers)})

    async def visitor(self, request: web.Request) -> web.StreamResponse:
        """The waiting page and its calls, as a reverse proxy passes them on."""
        if VISITORS.fullmatch(request.path) is None:
            raise web.HTTPNotFound
        came_from = ", ".join(
            [*request.headers.getall("x-forwarded-for", []), request.remote or "unknown"]
        )
        told = {"host": request.host, "x-forwarded-for": came_from}
        headers = {
            name: value for name, value in request.headers.items() if name.lower() not in told
        }
        async with self._gate.request(
            request.method,
            request.raw_path,
            headers={**headers, **told},
            data=await request.read(),
        ) as answer:
            kept = {name: v for name, v in answer.headers.items() if name.lower() not in HOP}
            passed = web.StreamResponse(status=answer.status, headers=kept)
            await passed.prepare(request)
            async for piece in answer.content.iter_any():
                await passed.write(piece)
            return passed


def page(body: str) -> web.Response:
    return web.Response(
        text=f"<!doctype html><title>Tickets</title>{body}", content_type="text/html"
    )


async def build(options: argparse.Namespace) -> web.Application:
    app = web.Application(handler_args={"handler_cancellation": True})

    async def opened(app: web.Application):
        token = os.environ.get("PENSTOCK_TOKEN")
        gate = ClientSession(options.penstock, timeout=ClientTimeout(total=None))
        async with penstock.AsyncClient(options.penstock, token=token) as client, gate:
            await client.rooms.put(
                ROOM, capacity=options.inside, claim_ttl="1m", session_ttl="5m", public=True
            )
            app.add_routes(Shop(client, gate, options.tickets).routes())
            yield

    app.cleanup_ctx.append(opened)
    return app


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--tickets", type=int, default=50, help="how many there are")
    asked.add_argument("--inside", type=int, default=5, help="how many may shop at once")
    asked.add_argument("--port", type=int, default=8800)
    asked.add_argument("--penstock", default="http://127.0.0.1:8700", help="the server's address")
    options = asked.parse_args()
    load_dotenv(".env")  # PENSTOCK_TOKEN
    web.run_app(build(options), host="127.0.0.1", port=options.port, shutdown_timeout=1)


if __name__ == "__main__":
    main()
