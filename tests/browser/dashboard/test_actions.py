"""What can be done from the dashboard, and that it is done."""

from __future__ import annotations

import re

from playwright.async_api import Page, expect

from tests.browser.dashboard.conftest import OpenDashboard, World
from tests.browser.watch import BROWSER, Watch

pytestmark = BROWSER


async def confirm(page: Page, button: str, says: str) -> None:
    """The question says how many; answer it, and wait until it is done."""
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text(says)
    await dialog.get_by_role("button", name=button, exact=True).click()
    await expect(dialog).to_have_count(0)


async def test_a_message_is_found_by_id_and_by_filter(
    world: World, dashboard: OpenDashboard, watch: Watch
) -> None:
    watch.allow("404")
    first = await world.schedule(key="needle", delay="2h")
    await world.schedule(key="hay")
    page = await dashboard("messages")
    await page.get_by_label("Find by id").fill("nobody")
    await page.get_by_role("button", name="Find").click()
    await expect(page.get_by_role("alert")).to_contain_text("no message with the id nobody")
    await page.get_by_label("Key").fill("needle")
    await page.get_by_label("State").select_option("scheduled")
    await page.get_by_label("Route").select_option("quiet")
    await page.get_by_role("button", name="Search").click()
    await expect(page).to_have_url(re.compile("key=needle"))
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.get_by_role("link", name=first).click()
    await expect(page.get_by_role("heading", name=first)).to_be_visible()
    await expect(page.locator(".timeline")).to_contain_text("accepted")


async def test_messages_are_found_by_time(world: World, dashboard: OpenDashboard) -> None:
    await world.schedule(key="year-40", at="2040-02-28T14:16:00Z")
    await world.schedule(key="year-41", at="2041-02-28T14:16:00Z")
    page = await dashboard("messages", timezone_id="Asia/Seoul")
    await page.get_by_label("Due from").fill("2040-01-01T00:00:00")
    await page.get_by_label("Due before").fill("2041-01-01T00:00:00")
    await page.get_by_role("button", name="Search").click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator("tbody tr")).to_contain_text("year-40")
    await expect(page.locator("tbody time")).to_contain_text("23:16:00")


async def test_cancel_cancels(world: World, dashboard: OpenDashboard) -> None:
    message = await world.schedule()
    page = await dashboard(f"message/{message}")
    await page.get_by_role("button", name="Cancel…").click()
    await confirm(page, "Cancel 1 message", "1 message")
    await expect(page.locator(".summary .pill").first).to_have_text("cancelled")
    assert await world.state(message) == "cancelled"


async def test_reschedule_moves_and_release_sends(world: World, dashboard: OpenDashboard) -> None:
    message = await world.schedule()
    page = await dashboard(f"message/{message}")
    await page.get_by_role("button", name="Reschedule…").click()
    await page.get_by_label("In", exact=False).first.fill("3d")
    await page.keyboard.press("Tab")
    await confirm(page, "Reschedule 1 message", "due in 3d")
    await expect(page.locator(".timeline")).to_contain_text("rescheduled")
    await expect(page.locator(".facts").first).to_contain_text(re.compile("in (3d|2d 23h)"))
    await page.get_by_role("button", name="Release now…").click()
    await confirm(page, "Release 1 message", "1 message")
    await expect(page.locator(".summary .pill").first).to_have_text("delivered")
    assert await world.state(message) == "delivered"


async def test_a_moment_that_makes_no_sense_is_told_in_the_question(
    world: World, dashboard: OpenDashboard, watch: Watch
) -> None:
    watch.allow("422")
    message = await world.schedule()
    page = await dashboard(f"message/{message}")
    await page.get_by_role("button", name="Reschedule…").click()
    await page.get_by_label("In", exact=False).first.fill("soon")
    await page.keyboard.press("Tab")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Reschedule 1 message").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("delay")


async def test_bulk_changes_say_how_many_and_do_as_many(
    world: World, dashboard: OpenDashboard
) -> None:
    ids = [await world.schedule(key="crowd") for _ in range(6)]
    page = await dashboard("messages?state=scheduled&key=crowd")
    await expect(page.locator("tbody tr")).to_have_count(6)
    await page.get_by_role("button", name="Reschedule…").click()
    await confirm(page, "Reschedule 6 messages", "6 messages scheduled")
    await expect(page.locator("#toasts")).to_contain_text("6 messages")
    await page.get_by_label("Key").fill("other")
    await page.get_by_role("button", name="Search").click()
    await page.get_by_role("button", name="Cancel…").click()
    await expect(page.get_by_role("dialog")).to_contain_text("0 messages")
    await expect(page.get_by_role("button", name="Nothing to do")).to_be_disabled()
    await page.keyboard.press("Escape")
    await page.goto(f"{world.url}/#/messages?state=scheduled&key=crowd")
    await page.get_by_role("button", name="Release…").click()
    await confirm(page, "Release 6 messages", "6 messages not due yet")
    for message in ids:
        await world.becomes(message, "delivered")
    held = [await world.schedule(key="crowd") for _ in range(2)]
    await page.get_by_role("button", name="Cancel…").click()
    await confirm(page, "Cancel 2 messages", "2 messages scheduled")
    assert [await world.state(message) for message in held] == ["cancelled"] * 2


async def test_redrive_redrives_one_and_a_group(world: World, dashboard: OpenDashboard) -> None:
    dead = [await world.schedule(route="gone", delay=0, key="dead") for _ in range(3)]
    for message in dead:
        await world.becomes(message, "dead")
    world.shop.mended = True
    page = await dashboard(f"message/{dead[0]}")
    await page.get_by_role("button", name="Redrive…").click()
    await confirm(page, "Redrive 1 message", "1 message")
    await world.becomes(dead[0], "delivered")
    await page.goto(f"{world.url}/#/dead")
    row = page.get_by_role("row").filter(has_text="gone")
    await row.get_by_role("button", name="Redrive").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text(re.compile(r"[\d,]+ messages dead, .*on route gone"))
    await dialog.get_by_role("button", name=re.compile(r"Redrive \d+ messages")).click()
    await expect(dialog).to_have_count(0)
    for message in dead:
        await world.becomes(message, "delivered")
    world.shop.mended = False


async def test_delete_deletes_one_dead_message_and_a_group(
    world: World, dashboard: OpenDashboard, watch: Watch
) -> None:
    watch.allow("404")  # the page may ask for the message once more while it is being deleted
    dead = [await world.schedule(route="gone", delay=0, key="doomed") for _ in range(3)]
    for message in dead:
        await world.becomes(message, "dead")
    page = await dashboard(f"message/{dead[0]}")
    await page.get_by_role("button", name="Delete…").click()
    await confirm(page, "Delete 1 message", "The message and its timeline are removed")
    await expect(page).to_have_url(re.compile("#/dead"))
    assert await world.is_gone(dead[0])
    await page.goto(f"{world.url}/#/messages?state=dead&key=doomed")
    await expect(page.locator("tbody tr")).to_have_count(2)
    await page.get_by_role("button", name="Delete…").click()
    await confirm(page, "Delete 2 messages", "2 messages dead")
    await expect(page.locator("tbody tr")).to_have_count(0)
    again = await world.schedule(route="gone", delay=0)
    await world.becomes(again, "dead")
    await page.goto(f"{world.url}/#/dead")
    row = page.get_by_role("row").filter(has_text="gone")
    await row.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text(re.compile(r"[\d,]+ messages? dead, .*on route gone"))
    await dialog.get_by_role("button", name=re.compile(r"Delete \d+ messages?")).click()
    await expect(dialog).to_have_count(0)
    assert await world.is_gone(again)


async def test_pause_pauses_and_resume_resumes(world: World, dashboard: OpenDashboard) -> None:
    page = await dashboard("routes")
    row = page.get_by_role("row").filter(has_text="quiet")
    await row.get_by_role("button", name="Pause").click()
    await confirm(page, "Pause 1 route", "1 route: quiet")
    await expect(row).to_contain_text("paused")
    held = await world.schedule(delay=0)
    await expect(row.get_by_role("button", name="Resume")).to_be_visible()
    assert await world.state(held) == "scheduled"
    await row.get_by_role("button", name="Resume").click()
    await confirm(page, "Resume 1 route", "1 route: quiet")
    await expect(row).to_contain_text("running")
    await world.becomes(held, "delivered")


async def test_a_room_is_paused_and_resumed(world: World, dashboard: OpenDashboard) -> None:
    await world.ask("PUT", "/v1/rooms/hall", {"capacity": 5})
    page = await dashboard("rooms")
    room = page.get_by_role("region", name="Room hall")
    await room.get_by_role("button", name="Pause").click()
    await confirm(page, "Pause 1 room", "1 room: hall")
    await expect(room.locator(".pill")).to_have_text("paused")
    await room.get_by_role("button", name="Resume").click()
    await confirm(page, "Resume 1 room", "1 room: hall")
    await expect(room.locator(".pill")).to_have_text("open")
