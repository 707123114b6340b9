"""Names that a shell completes: of the settings, and of the store or server they lead to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from penstock.cli.session import Verbs
    from penstock.settings import Settings

PATIENCE = 1.0
"""Seconds that a server has to answer: the user is waiting at the Tab key."""
MOST = 200
"""Names read at most."""


def routes(ctx: typer.Context, incomplete: str) -> list[str]:
    async def stored(verbs: Verbs) -> Iterable[str]:
        return [route.name for route in await verbs.routes()]

    return _names(ctx, incomplete, lambda settings: settings.all_routes(), stored)


def policies(ctx: typer.Context, incomplete: str) -> list[str]:
    async def stored(verbs: Verbs) -> Iterable[str]:
        return await verbs.policies()

    return _names(ctx, incomplete, lambda settings: settings.policies, stored)


def suppressions(ctx: typer.Context, incomplete: str) -> list[str]:
    async def stored(verbs: Verbs) -> Iterable[str]:
        return await verbs.suppressions()

    return _names(ctx, incomplete, lambda settings: settings.suppressions, stored)


def rules(ctx: typer.Context, incomplete: str) -> list[str]:
    async def stored(verbs: Verbs) -> Iterable[str]:
        page, _ = await verbs.recurring.list(cursor=None, limit=MOST)
        return [rule.id for rule in page]

    return _names(ctx, incomplete, lambda settings: settings.recurring, stored)


def rooms(ctx: typer.Context, incomplete: str) -> list[str]:
    async def stored(verbs: Verbs) -> Iterable[str]:
        page, _ = await verbs.rooms.list(cursor=None, limit=MOST)
        return [room.room for room in page]

    return _names(ctx, incomplete, lambda _: (), stored)


def _names(
    ctx: typer.Context,
    incomplete: str,
    configured: Callable[[Settings], Iterable[str]],
    stored: Callable[[Verbs], Awaitable[Iterable[str]]],
) -> list[str]:
    """Sorted completions of `incomplete`; names that cannot be read now are left out."""
    from penstock.cli.session import session_of
    from penstock.wiring import on_server

    session = session_of(ctx)
    found: set[str] = set()
    patience: float | None = PATIENCE
    if session.url is None:
        with suppress(Exception):
            settings = session.settings()
            found.update(configured(settings))
            patience = PATIENCE if on_server(settings) else None

    async def ask() -> None:
        async with asyncio.timeout(patience), session.verbs() as verbs:
            found.update(await stored(verbs))

    with suppress(Exception):
        asyncio.run(ask())
    return sorted(name for name in found if name.startswith(incomplete))
