"""The page a visitor is shown, in a real browser."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]
from playwright.async_api import Page, Request, Route, expect

from tests.browser.conftest import OpenPage
from tests.browser.proxy import below
from tests.browser.watch import BROWSER, Watch
from tests.servers.penstock import PenstockProcess, run_penstock

pytestmark = BROWSER
CONFIG = """
store = "sqlite:///penstock.db"
[api]
http = "127.0.0.1:@PORT@"
tokens = ["operator"]
"""
PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 640}, "is_mobile": True}
_names = (f"sale-{number}" for number in itertools.count())


class Room:
    """One room of a running server: whoever is first in it holds the only slot."""

    def __init__(self, server: PenstockProcess, name: str, operator: httpx.AsyncClient) -> None:
        self.name = name
        self.url = f"{server.url}/rooms/{name}"
        self._operator = operator

    async def put(self, **settings: object) -> None:
        await self._ask(
            "PUT", "", {"capacity": 1, "session_ttl": "10s", "public": True, **settings}
        )

    async def join(self, *users: str) -> None:
        for user in users:
            await self._ask("POST", "/join", {"user": user})

    async def leave(self, user: str) -> None:
        await self._ask("DELETE", f"/tickets/{user}")

    async def do(self, word: str) -> None:
        await self._ask("POST", f"/{word}")

    async def enter(self, token: str) -> dict[str, Any]:
        return await self._ask("POST", "/enter", {"token": token})

    async def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        answer = await self._operator.request(method, f"/v1/rooms/{self.name}{path}", json=body)
        answer.raise_for_status()
        said: dict[str, Any] = answer.json()
        return said


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PenstockProcess]:
    async with run_penstock(tmp_path_factory.mktemp("rooms"), CONFIG) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def room(server: PenstockProcess) -> AsyncIterator[Room]:
    headers = {"authorization": "Bearer operator"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=300) as operator:
        made = Room(server, next(_names), operator)
        await made.put()
        yield made


async def places(page: Page, place: str) -> None:
    await expect(page.locator("#place")).to_have_text(place)


async def test_a_visitor_sees_the_place_and_is_moved_up_as_others_leave(
    page: Page, room: Room
) -> None:
    await room.join("inside", "a", "b", "c")
    await page.goto(room.url)
    await expect(page.locator("h1")).to_have_text("You are in line")
    await places(page, "4")
    await expect(page.locator("#ahead")).to_have_text("3")
    await expect(page.locator("#all")).to_have_text("4")
    await expect(page.locator("#estimate")).not_to_be_empty()
    await expect(page.locator("#live")).to_be_visible()
    before = int(await page.locator("#ring").get_attribute("aria-valuenow") or "")
    await room.leave("a")
    await places(page, "3")
    assert int(await page.locator("#ring").get_attribute("aria-valuenow") or "") > before
    await expect(page).to_have_title("3 · You are in line")


async def test_when_the_turn_comes_the_way_in_has_a_token_and_the_focus(
    page: Page, room: Room
) -> None:
    await room.join("inside")
    await page.goto(f"{room.url}?next=/checkout%3Fcart=7")
    await places(page, "1")
    await room.leave("inside")
    await expect(page.locator("h1")).to_have_text("It's your turn")
    way_in = page.get_by_role("button", name="Enter now")
    await expect(way_in).to_be_focused()
    await expect(page.locator("#spoken")).to_have_text("It's your turn")
    await expect(page.locator("#countdown")).to_have_text(re.compile(r"^[12]:\d\d$"))
    token = await page.locator("#token").input_value()
    assert (await room.enter(token))["state"] == "ENTERED"
    await expect(page.locator("h1")).to_have_text("You are in")


async def test_the_token_is_handed_over_in_the_body_of_a_post(page: Page, room: Room) -> None:
    posted: list[Request] = []

    async def shop(route: Route) -> None:
        posted.append(route.request)
        await route.fulfill(body="<!doctype html><title>shop</title>", content_type="text/html")

    await page.route(lambda url: urlsplit(url).path == "/checkout", shop)
    await page.goto(f"{room.url}?next=/checkout%3Fcart=7")
    await expect(page.locator("#go")).to_be_visible()
    token = await page.locator("#token").input_value()
    await page.get_by_role("button", name="Enter now").click()
    await expect(page).to_have_title("shop")
    (request,) = posted
    assert (request.method, request.post_data) == ("POST", f"token={token}")
    assert request.url.endswith("/checkout?cart=7")
    assert token not in page.url


async def test_the_token_is_handed_over_behind_the_hash_on_request(page: Page, room: Room) -> None:
    seen: list[Request] = []

    async def shop(route: Route) -> None:
        seen.append(route.request)
        await route.fulfill(body="<!doctype html><title>shop</title>", content_type="text/html")

    await page.route(lambda url: urlsplit(url).path == "/checkout", shop)
    await page.goto(f"{room.url}?next=/checkout&handover=fragment")
    await expect(page.locator("#go")).to_be_visible()
    token = await page.locator("#token").input_value()
    await page.get_by_role("button", name="Enter now").click()
    await expect(page).to_have_title("shop")
    assert page.url.endswith(f"/checkout#token={token}")
    assert [request.method for request in seen] == ["GET"]
    assert all("token" not in request.url.partition("#")[0] for request in seen)


@pytest.mark.parametrize("elsewhere", ["//example.org/x", "/\\example.org", "https://example.org"])
async def test_nobody_is_led_elsewhere_with_a_token(page: Page, room: Room, elsewhere: str) -> None:
    await page.goto(f"{room.url}?next={elsewhere}")
    await expect(page.locator("#token")).to_be_visible()
    await expect(page.locator("#go")).to_be_hidden()


async def test_reloading_keeps_the_place(page: Page, room: Room) -> None:
    await room.join("inside")
    await page.goto(room.url)
    await places(page, "1")
    await room.join("later")
    await page.reload()
    await places(page, "1")
    await expect(page.locator("#all")).to_have_text("2")


async def test_a_visitor_leaves_and_lines_up_again_at_the_end(page: Page, room: Room) -> None:
    await room.join("inside")
    await page.goto(room.url)
    await places(page, "1")
    await room.join("later")
    await page.get_by_role("button", name="Leave the line").click()
    await expect(page.locator("h1")).to_have_text("You left the line")
    await page.get_by_role("button", name="Line up again").click()
    await places(page, "2")


async def test_a_pause_is_told_and_its_end_too(page: Page, room: Room) -> None:
    await room.join("inside")
    await page.goto(room.url)
    await places(page, "1")
    await room.do("pause")
    await expect(page.locator("#news")).to_contain_text("Nobody is let in at the moment")
    await expect(page.locator("#estimate")).to_have_text("No estimate yet")
    await room.do("resume")
    await expect(page.locator("#news")).to_be_hidden()


async def test_after_a_reset_the_visitor_is_in_line_again_without_asking_for_the_old_ticket(
    page: Page, room: Room
) -> None:
    await room.join("inside", "a")
    await page.goto(room.url)
    await places(page, "2")
    await expect(page.locator("#live")).to_be_visible()  # the stream is open: it tells of the reset
    await room.do("reset")
    await expect(page.locator("h1")).to_have_text("It's your turn")


@pytest.mark.parametrize(
    ("locale", "language", "title"),
    [
        ("ko-KR", "ko", "대기 중입니다"),
        ("zh-CN", "zh", "您正在排队"),
        ("de-AT", "de", "Sie stehen an"),
        ("fr-FR", "en", "You are in line"),
    ],
)
async def test_the_page_speaks_the_browsers_language(
    open_page: OpenPage, room: Room, locale: str, language: str, title: str
) -> None:
    await room.join("inside")
    page = await open_page(locale=locale)
    await page.goto(room.url)
    await expect(page.locator("h1")).to_have_text(title)
    assert await page.locator("html").get_attribute("lang") == language


async def test_without_streams_the_page_asks(page: Page, room: Room, watch: Watch) -> None:
    watch.allow("429")
    streams = []

    async def refuse(route: Route) -> None:
        streams.append(route.request.url)
        await route.fulfill(status=429, json={"error": {"code": "overloaded", "message": "full"}})

    await page.route("**/events", refuse)
    await room.join("inside")
    await page.goto(room.url)
    await places(page, "1")
    await room.leave("inside")
    await expect(page.locator("h1")).to_have_text("It's your turn")
    assert len(streams) == 1
    await expect(page.locator("#live")).to_be_hidden()


async def test_a_stream_that_a_proxy_holds_back_is_given_up(page: Page, room: Room) -> None:
    await page.clock.install()
    await page.route("**/events", lambda _: None)  # never answered
    await room.join("inside")
    await page.goto(room.url)
    await places(page, "1")
    await room.leave("inside")
    await page.clock.run_for(12_000)
    await page.clock.run_for(12_000)
    await expect(page.locator("h1")).to_have_text("It's your turn")


async def test_a_lost_connection_is_told_and_found_again(
    page: Page, room: Room, watch: Watch
) -> None:
    watch.allow("ERR_INTERNET_DISCONNECTED")
    await room.join("inside")
    await page.goto(room.url)
    await places(page, "1")
    await page.context.set_offline(True)
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await expect(page.locator("#news")).to_contain_text("No connection")
    await page.context.set_offline(False)
    await room.leave("inside")
    await expect(page.locator("h1")).to_have_text("It's your turn")


async def test_rooms_that_are_not_there_or_closed_are_told(
    page: Page, room: Room, watch: Watch
) -> None:
    watch.allow("401|409")
    await room.do("close")
    await page.goto(room.url)
    await expect(page.locator("h1")).to_have_text("This waiting room is closed.")
    await page.goto(f"{room.url}-none")
    await expect(page.locator("h1")).to_have_text("You cannot line up here.")


async def test_the_page_works_below_a_path(page: Page, room: Room, server: PenstockProcess) -> None:
    await room.join("inside")
    async with below("/queue/v2", server.url) as address:
        await page.goto(f"{address}/rooms/{room.name}")
        await places(page, "1")
        await expect(page.locator("#live")).to_be_visible()
        await room.leave("inside")
        await expect(page.locator("h1")).to_have_text("It's your turn")
        await page.goto("about:blank")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_waiting_and_turn_are_accessible_on_a_phone(
    open_page: OpenPage, room: Room, scheme: str
) -> None:
    await room.join("inside")
    page = await open_page(**PHONE, color_scheme=scheme, reduced_motion="reduce")
    await page.goto(f"{room.url}?next=/checkout")
    await places(page, "1")
    await accessible(page)
    await room.leave("inside")
    await expect(page.locator("#turn")).to_be_visible()
    await accessible(page)


async def accessible(page: Page) -> None:
    found = await Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert await page.evaluate(overflow) == 0
    for control in await page.locator("button:visible, a:visible, summary:visible").all():
        box = await control.bounding_box()
        assert box is not None
        assert box["height"] >= 44
