"""What the dashboard shows while messages pass."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]
from playwright.async_api import Page, expect

from tests.browser.dashboard.conftest import TOKENS, XSS, OpenDashboard, World
from tests.browser.proxy import below
from tests.browser.watch import BROWSER

pytestmark = BROWSER
VIEWS = ("now", "forecast", "routes", "messages", "dead", "recurring", "policies", "rooms")
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True}
WALL: dict[str, Any] = {"viewport": {"width": 2560, "height": 1440}}


DRAWN_IN_THE_LEFT_HALF = """canvas => {
  const [from, wide] = [canvas.width * 0.15, canvas.width * 0.35];
  const seen = canvas.getContext("2d").getImageData(from, 0, wide, canvas.height * 0.7).data;
  return seen.filter((value, i) => i % 4 === 3 && value > 0).length;
}"""


async def test_charts_and_figures_move_without_a_reload(
    world: World, dashboard: OpenDashboard
) -> None:
    page = await dashboard("now")
    delivered = page.locator("[data-stage=delivered] .figure")
    await expect(delivered).not_to_have_text("–")
    await expect(delivered).not_to_have_text("0")
    chart = page.locator(".chart canvas").first
    before = await chart.evaluate("canvas => canvas.toDataURL()")
    await page.wait_for_function(
        "before => document.querySelector('.chart canvas').toDataURL() !== before", arg=before
    )
    late = page.locator("[data-stage=late_p50]")
    await expect(late).to_contain_text("0 left early")


async def test_history_from_before_the_page_was_opened_is_shown(dashboard: OpenDashboard) -> None:
    await dashboard("now")
    page = await dashboard("now")
    path = page.locator("[data-stage=accepted] .spark .line")
    await expect(path).to_have_attribute("d", re.compile("L.*L.*L"))


async def test_a_forecast_counts_what_is_coming_by_route(
    world: World, dashboard: OpenDashboard
) -> None:
    await world.ask(
        "POST", "/v1/messages/batch", [{"route": "gone", "delay": "30h"} for _ in range(7)]
    )
    page = await dashboard("forecast")
    await expect(page.locator(".tile", has_text="Next 7 days")).to_contain_text("messages")
    await page.locator("summary").click()
    await expect(page.get_by_role("row").filter(has_text="gone 7")).to_have_count(1)
    assert await page.locator(".chart canvas").count() == 2


async def test_processes_and_policies_and_rooms_are_listed(
    world: World, dashboard: OpenDashboard
) -> None:
    await world.ask("PUT", "/v1/rooms/sale", {"capacity": 1})
    for user in ("u1", "u2", "u3"):
        await world.ask("POST", "/v1/rooms/sale/join", {"user": user})
    page = await dashboard("routes")
    await expect(page.get_by_role("row").filter(has_text="serve")).to_contain_text("now")
    await page.goto(f"{world.url}/#/policies")
    row = page.get_by_role("row").filter(has_text="one-a-day")
    await expect(row).to_contain_text("1 a key in 24h, else defer")
    await expect(row.get_by_role("cell").nth(3)).not_to_have_text("0")
    past = {"waiting": [900] * 60, "inside": [1] * 60, "capacity": [1] * 60}
    since = (datetime.now(UTC) - timedelta(minutes=5)).isoformat()
    await page.route(
        "**/v1/history/rooms",
        lambda route: route.fulfill(json={"step": 5, "from": since, "rooms": {"sale": past}}),
    )
    await page.goto(f"{world.url}/#/rooms")
    room = page.get_by_role("region", name="Room sale")
    await expect(room).to_contain_text("2Waiting")
    await expect(room.locator("canvas")).to_have_count(1)
    # The line of five minutes ago is drawn at once, in the left half.
    assert await room.locator("canvas").evaluate(DRAWN_IN_THE_LEFT_HALF) > 1000


async def test_a_rule_shows_what_comes_and_what_was_and_is_triggered_and_paused(
    world: World, dashboard: OpenDashboard
) -> None:
    rule = {"cron": "0 9 1 1 *", "zone": "Europe/Berlin", "route": "steady", "payload": 1}
    await world.ask("PUT", "/v1/recurring/new-year", rule)
    page = await dashboard("recurring")
    row = page.get_by_role("row").filter(has_text="new-year")
    await expect(row).to_contain_text("At 09:00 on January 1")
    await expect(row).to_contain_text("active")
    await page.get_by_role("button", name="Trigger new-year").click()
    await page.get_by_role("button", name="Trigger 1 message").click()
    await page.get_by_role("link", name="new-year", exact=True).click()
    await expect(page.get_by_role("row").filter(has_text="triggered")).to_contain_text("new-year@")
    await expect(page.get_by_role("heading", name="new-year")).to_be_visible()
    assert "null" not in await page.locator("main").inner_text()
    cells = page.locator(".calendar i")
    assert await page.locator(".calendar i:not(.none)").count() >= 7 * 24 - 1  # clocks go back
    assert await cells.count() == 24 * await page.locator(".calendar").count(), "hours in columns"
    await page.get_by_role("button", name="Pause new-year").click()
    await page.get_by_role("button", name="Pause the rule").click()
    await expect(row.first).to_contain_text("paused")


NEVER_BY_ITSELF = """() => {
  const real = window.setTimeout;
  for (let timer = real(() => {}); timer > 0; timer -= 1) clearTimeout(timer);
  window.setTimeout = (then, wait, ...rest) => (wait >= 5000 ? 0 : real(then, wait, ...rest));
}"""
"""The view's own next look at the server does not come any more."""


async def test_a_rule_that_was_paused_or_triggered_is_read_again_at_once(
    world: World, dashboard: OpenDashboard
) -> None:
    rule = {"cron": "0 9 1 1 *", "route": "steady", "payload": 1}
    await world.ask("PUT", "/v1/recurring/at-once", rule)
    page = await dashboard("recurring/at-once")
    row = page.get_by_role("row").filter(has_text="At 09:00").filter(has_text="at-once")
    await expect(row).to_contain_text("active")
    await expect(page.locator(".calendar").first).to_be_visible()
    await page.evaluate(NEVER_BY_ITSELF)
    await page.get_by_role("button", name="Pause at-once").click()
    await page.get_by_role("button", name="Pause the rule").click()
    await expect(row).to_contain_text("paused")
    await page.get_by_role("button", name="Resume at-once").click()
    await page.get_by_role("button", name="Resume the rule").click()
    await expect(row).to_contain_text("active")
    await page.get_by_role("button", name="Trigger at-once").click()
    await page.get_by_role("button", name="Trigger 1 message").click()
    await expect(page.get_by_role("row").filter(has_text="triggered")).to_contain_text("at-once@")


async def test_a_timeline_tells_what_let_the_message_go(
    world: World, dashboard: OpenDashboard
) -> None:
    labels = {"class": "promotional"}
    message_id = await world.schedule(route="steady", key="alone", labels=labels, delay=0)
    await world.becomes(message_id, "delivered")
    page = await dashboard(f"message/{message_id}")
    await expect(page.locator(".timeline")).to_contain_text("ALLOW by one-a-day")


async def test_whatever_somebody_sends_is_shown_as_text(
    world: World, dashboard: OpenDashboard
) -> None:
    await world.schedule(
        id=f"a{XSS}", route="gone", key=XSS, headers={"x-a": XSS}, payload={XSS: XSS}, delay=0
    )
    page = await dashboard("dead")
    await expect(page.get_by_role("row").filter(has_text=XSS)).to_contain_text("gone")
    await page.get_by_role("link", name=f"a{XSS}").click()
    await expect(page.get_by_role("heading", name=f"a{XSS}")).to_be_visible()
    for place in (".facts >> nth=0", ".error-text", ".timeline", "pre", ".facts >> nth=1"):
        await expect(page.locator(place)).to_contain_text("<script>window.hacked=1</script>")
    await page.goto(f"{world.url}/#/messages?state=dead")
    await expect(page.get_by_role("row").filter(has_text=f"a{XSS}")).to_contain_text("dead")
    assert await page.evaluate("window.hacked === undefined")
    assert await page.locator("main img, main script").count() == 0


async def test_it_works_below_a_path(world: World, dashboard: OpenDashboard) -> None:
    page = await dashboard("now")
    async with below("/some/where", world.url) as address:
        await page.add_init_script(f"sessionStorage.setItem('penstock-token', '{TOKENS['read']}')")
        await page.goto(f"{address}/#/now")
        await expect(page.locator("#link-text")).to_have_text("live")
        await expect(page.locator("[data-stage=delivered] .figure")).not_to_have_text("–")
        await page.get_by_role("link", name="Routes").click()
        await expect(page.get_by_role("row").filter(has_text="steady")).to_contain_text("running")
        await page.get_by_role("link", name="API docs").click()
        await expect(page.get_by_role("heading", name="Penstock API")).to_be_visible()
        await expect(page.locator("#operations details").first).to_be_visible()


async def test_everything_can_be_reached_with_the_keyboard(
    world: World, dashboard: OpenDashboard
) -> None:
    message = await world.schedule()
    page = await dashboard("now")
    await page.keyboard.press("Tab")
    await expect(page.get_by_text("Skip to the content")).to_be_focused()
    await page.get_by_role("link", name="Messages").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_be_focused()
    await page.keyboard.press("Tab")
    await expect(page.get_by_label("Find by id")).to_be_focused()
    await page.keyboard.type(message)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name=message)).to_be_visible()
    await page.get_by_role("button", name="Cancel…").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_contain_text("1 message")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(page.get_by_role("button", name="Cancel…")).to_be_focused()
    assert await world.state(message) == "scheduled"


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_every_view_is_accessible_in_light_and_dark(
    world: World, dashboard: OpenDashboard, theme: Literal["light", "dark"]
) -> None:
    message = await world.schedule(headers={"x-a": "b"})
    page = await dashboard("now", color_scheme=theme)
    for view in (*VIEWS, f"message/{message}"):
        await page.goto(f"{world.url}/#/{view}")
        await settled(page)
        found = await Axe().run(page)
        assert found.violations_count == 0, f"{view}: {found.generate_report()}"
    await page.get_by_role("button", name="Reschedule…").click()
    await expect(page.get_by_role("dialog")).to_contain_text("1 message")
    found = await Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("screen", [PHONE, WALL], ids=["phone", "wall"])
async def test_no_view_is_wider_than_the_screen(
    world: World, dashboard: OpenDashboard, screen: dict[str, Any]
) -> None:
    page = await dashboard("now", **screen)
    for view in VIEWS:
        await page.goto(f"{world.url}/#/{view}")
        await settled(page)
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await page.evaluate(wide) == 0, view


async def test_the_theme_is_the_systems_until_it_is_switched(dashboard: OpenDashboard) -> None:
    page = await dashboard("now", color_scheme="dark")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await page.get_by_role("button", name="Switch between light and dark").click()
    await expect(page.locator("html")).to_have_attribute("data-theme", "light")
    await page.reload()
    await expect(page.locator("html")).to_have_attribute("data-theme", "light")


async def settled(page: Page) -> None:
    """The view's heading is there and nothing is being asked for."""
    await expect(page.locator("main h1")).to_be_visible()
    await expect(page.locator("main .notice:visible")).to_have_count(0)
    shown = page.locator("main :is(table, .tile, .lesson, .room, .timeline)")
    await expect(shown.first).to_be_attached()
