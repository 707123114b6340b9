"""A real browser (the system's Chromium, headless), for pages of any kind.

Browser and pages live in one event loop for all tests of a worker, so a module of tests says
`pytestmark = BROWSER` (from tests.browser.watch). After each test the page must have logged no
error, and must have asked nobody but this machine.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.browser.watch import Watch

OpenPage: TypeAlias = Callable[..., Awaitable[Page]]
"""Opens a page; the arguments are those of `Browser.new_context`."""
WAIT_MS = 120_000
expect.set_options(timeout=WAIT_MS)


def chromium() -> str:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise pytest.UsageError("these tests need Chromium: apt install chromium")
    return path


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(
            executable_path=chromium(),
            # As root, in a container: no sandbox of its own, and little shared memory.
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
        )
        yield running
        await running.close()


@pytest_asyncio.fixture(loop_scope="session")
async def watch() -> Watch:
    """What the pages of this test do; tell it of errors that are part of the test."""
    return Watch()


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(browser: Browser, watch: Watch) -> AsyncIterator[OpenPage]:
    """Pages of any language, size or colour scheme, each in a context of its own."""
    contexts = []

    async def opened(**options: Any) -> Page:
        context = await browser.new_context(**{"locale": "en-US", **options})
        contexts.append(context)
        context.set_default_timeout(WAIT_MS)
        page = await context.new_page()
        watch.follow(page)
        return page

    yield opened
    for context in contexts:
        await context.close()
    watch.check()


@pytest_asyncio.fixture(loop_scope="session")
async def page(open_page: OpenPage) -> Page:
    """An English page of a desktop's size."""
    return await open_page()
