"""Expensive counts are made rarely: one process's count serves all, through Redis."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from penstock.model.errors import PenstockError
from penstock.stores.dynamodb.session import Session, log

Counted = TypeVar("Counted")


async def shared(
    session: Session,
    name: str,
    serves: int,
    make: Callable[[], Awaitable[Counted]],
    *,
    encode: Callable[[Counted], bytes],
    decode: Callable[[bytes], Counted],
) -> Counted:
    """The value a process made in the last `serves` milliseconds, or a new one, shared.

    With `serves` 0 it is made now and not shared. Without Redis every process makes its own, as
    rarely.
    """
    if not serves:
        return await make()
    now = session.clock.now()
    try:
        stored = await session.near.noted(name)
    except PenstockError:
        counted, own = session.counts.get(name, (0, None))
        if own is not None and counted <= now < counted + serves:
            return cast("Counted", own)
        stored = None
    if stored is not None:
        return decode(stored)
    made = await make()
    session.counts[name] = now, made
    try:
        await session.near.note(name, encode(made), serves)
    except PenstockError as exc:
        log.debug("%s: Redis failed, so this count is not shared: %s", name, exc)
    return made
