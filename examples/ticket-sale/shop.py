"""A shop that sells tickets to a crowd: only as many shop at once as the room lets in.

The shop makes the room, shows visitors the waiting page under its own address, redeems the tokens
they come back with, asks before it sells whether they still hold a slot, and gives it back when
they have bought.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

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


@dataclass
class Shopper:
    """A visitor whose token was redeemed."""

    user: str
    expires: str | None
    """When the session ends, unless the visitor is heard of again; None: never."""

    def is_gone(self) -> bool:
        return self.expires is not None and datetime.fromisoformat(self.expires) < datetime.now(UTC)


class Shop:
    """Tickets, and who is shopping."""

    def __init__(self, client: penstock.AsyncClient, gate: ClientSession, tickets: int) -> None:
        self._client = client
        self._gate = gate
        self.left = tickets
        self.shoppers: dict[str, Shopper] = {}
        """By cookie. Whether one still holds a slot, only Penstock knows."""

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
            raise to_the_line() from None
        self.forget(inside.user)
        cookie = secrets.token_urlsafe()
        self.shoppers[cookie] = Shopper(inside.user, inside.session_expires)
        answer = web.HTTPSeeOther("/buy")
        answer.set_cookie(COOKIE, cookie, httponly=True, samesite="Lax")
        raise answer

    async def offer(self, request: web.Request) -> web.Response:
        await self.check_inside(request)
        return page(f'<h1>{self.left} left</h1><form method="post"><button>Buy</button></form>')

    async def buy(self, request: web.Request) -> web.Response:
        await self.check_inside(request)
        shopper = self.shoppers.pop(request.cookies[COOKIE], None)
        if shopper is None:  # the same visitor has bought in another tab meanwhile
            raise to_the_line()
        sold = self.left > 0
        self.left -= sold
        with suppress(penstock.PenstockError):  # then the slot comes back with the session's end
            await self._client.rooms.leave(ROOM, shopper.user)  # the next one comes in
        return page("<h1>Enjoy the show</h1>" if sold else "<h1>Sold out</h1>")

    async def check_inside(self, request: web.Request) -> None:
        """Go on only for a visitor who holds a slot now, and keep it; others go to the line.

        A session that has ended is no error to a heartbeat: the answer says its state.
        """
        cookie = request.cookies.get(COOKIE, "")
        shopper = self.shoppers.get(cookie)
        if shopper is None:
            raise to_the_line()
        try:
            ticket = await self._client.rooms.heartbeat(ROOM, shopper.user)
        except penstock.UnknownThing:  # the room was reset
            ticket = None
        if ticket is None or ticket.state != "ENTERED":
            self.shoppers.pop(cookie, None)
            raise to_the_line()
        shopper.expires = ticket.session_expires

    def forget(self, user: str) -> None:
        """Forget who is gone, and what this user had before: a slot is good for one purchase."""
        self.shoppers = {
            cookie: shopper
            for cookie, shopper in self.shoppers.items()
            if shopper.user != user and not shopper.is_gone()
        }

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


def to_the_line() -> web.HTTPSeeOther:
    """Back to the waiting page, without the cookie."""
    answer = web.HTTPSeeOther(WAIT_HERE)
    answer.del_cookie(COOKIE)
    return answer


def page(body: str) -> web.Response:
    return web.Response(
        text=f"<!doctype html><title>Tickets</title>{body}", content_type="text/html"
    )


async def make_room(client: penstock.AsyncClient, slots: int) -> None:
    """Make the room. One that is there stays as it is: it may have been changed during the sale."""
    try:
        room = await client.rooms.get(ROOM)
    except penstock.UnknownThing:
        await client.rooms.put(ROOM, capacity=slots, claim_ttl="1m", session_ttl="5m", public=True)
        return
    if (room.capacity, room.public) != (slots, True):
        who = "anybody" if room.public else "only holders of a token"
        print(f"the room {ROOM} is there already: {room.capacity} slots, {who} may join. To change")
        print(f"it: penstock room put {ROOM} --capacity {slots} --public", flush=True)


async def build(options: argparse.Namespace) -> web.Application:
    app = web.Application(handler_args={"handler_cancellation": True})

    async def opened(app: web.Application):
        token = os.environ.get("PENSTOCK_TOKEN")
        gate = ClientSession(options.penstock, timeout=ClientTimeout(total=None))
        async with penstock.AsyncClient(options.penstock, token=token) as client, gate:
            await make_room(client, options.inside)
            app.add_routes(Shop(client, gate, options.tickets).routes())
            yield

    app.cleanup_ctx.append(opened)
    return app


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--tickets", type=int, default=50, help="how many there are")
    asked.add_argument(
        "--inside", type=int, default=5, help="how many may shop at once, in a new room"
    )
    asked.add_argument("--port", type=int, default=8800)
    asked.add_argument("--penstock", default="http://127.0.0.1:8700", help="the server's address")
    options = asked.parse_args()
    load_dotenv(".env")  # PENSTOCK_TOKEN
    web.run_app(build(options), host="127.0.0.1", port=options.port, shutdown_timeout=1)


if __name__ == "__main__":
    main()
