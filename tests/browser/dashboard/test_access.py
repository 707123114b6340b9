"""Tokens: asked for, kept for the tab only, and refused kindly."""

from __future__ import annotations

from playwright.async_api import expect

from tests.browser.dashboard.conftest import TOKENS, OpenDashboard, World
from tests.browser.watch import BROWSER, Watch

pytestmark = BROWSER


async def test_the_page_asks_for_a_token_refuses_a_dead_one_and_keeps_a_good_one_for_the_tab(
    world: World, dashboard: OpenDashboard, watch: Watch
) -> None:
    watch.allow("401")
    page = await dashboard("now", scope=None)
    question = page.get_by_role("dialog")
    await expect(question).to_contain_text("asks for a token")
    await page.keyboard.press("Escape")
    await expect(question).to_be_visible()
    await question.get_by_label("Token").fill("dead-secret")
    await question.get_by_role("button", name="Go on").click()
    await expect(question.get_by_role("alert")).to_contain_text("does not know that token")
    await question.get_by_label("Token").fill(TOKENS["read"])
    await question.get_by_role("button", name="Go on").click()
    await expect(page.locator("#link-text")).to_have_text("live")
    await expect(question).to_have_count(0)
    kept = "JSON.stringify([{...localStorage}, document.cookie, location.href])"
    assert TOKENS["read"] not in await page.evaluate(kept)
    await page.reload()
    await expect(page.locator("#link-text")).to_have_text("live")
    other = await page.context.new_page()
    await other.goto(f"{world.url}/")
    await expect(other.get_by_role("dialog")).to_contain_text("asks for a token")
    await page.get_by_role("button", name="Forget token").click()
    await expect(page.get_by_role("dialog")).to_contain_text("asks for a token")


async def test_a_token_that_may_only_read_changes_nothing(
    world: World, dashboard: OpenDashboard, watch: Watch
) -> None:
    watch.allow("403")
    message = await world.schedule()
    page = await dashboard(f"message/{message}", scope="read")
    await page.get_by_role("button", name="Cancel…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Cancel 1 message").click()
    await expect(dialog.get_by_role("alert")).to_contain_text(
        "needs a token with the scope 'write'"
    )
    assert await world.state(message) == "scheduled"


async def test_a_token_that_may_write_does_not_pause(
    world: World, dashboard: OpenDashboard, watch: Watch
) -> None:
    watch.allow("403")
    page = await dashboard("routes", scope="write")
    row = page.get_by_role("row").filter(has_text="quiet")
    await row.get_by_role("button", name="Pause").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Pause 1 route").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("'admin'")
    await page.keyboard.press("Escape")
    await expect(row).to_contain_text("running")


async def test_the_page_paints_before_any_figure_has_come(
    world: World, dashboard: OpenDashboard, watch: Watch
) -> None:
    watch.allow("ERR_FAILED|401")
    page = await dashboard("now", scope=None)
    await page.context.route("**/v1/**", lambda route: route.abort())
    await page.reload()
    await expect(page.locator(".tile")).to_have_count(8)
    await expect(page.locator("#link-text")).to_have_text("reconnecting")
    await page.context.unroute("**/v1/**")
    await expect(page.get_by_role("dialog")).to_contain_text("asks for a token")
