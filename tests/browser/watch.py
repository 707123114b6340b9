"""What a page may not do: log an error, throw one, or ask anybody beyond this machine."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.async_api import ConsoleMessage, Error, Page, Request

BROWSER = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]
HERE = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})
LOCAL_SCHEMES = frozenset({"data", "blob", "about"})


class Watch:
    """Follows pages and remembers what went wrong on them."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._allowed: list[re.Pattern[str]] = []

    def allow(self, pattern: str) -> None:
        """An error that this test causes on purpose."""
        self._allowed.append(re.compile(pattern))

    def follow(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", self._thrown)
        page.on("request", self._request)

    def check(self) -> None:
        unexpected = [
            problem
            for problem in self.problems
            if not any(allowed.search(problem) for allowed in self._allowed)
        ]
        assert unexpected == [], "\n".join(unexpected)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.problems.append(f"{message.type}: {message.text} ({message.location['url']})")

    def _thrown(self, error: Error) -> None:
        self.problems.append(f"thrown: {error}")

    def _request(self, request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme not in LOCAL_SCHEMES and url.hostname not in HERE:
            self.problems.append(f"asked another machine: {request.url}")
