"""FIND, GET, PURGE, PAUSE: reads of messages and routes, and their removal."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.message import Event, Message
from penstock.model.state import PURGEABLE
from penstock.model.timeline import lines_of
from penstock.stores.dynamodb.items import Item, is_forgotten
from penstock.stores.dynamodb.session import Loaded, Session

PAUSED = "s:paused"
ROUTES = "s:routes"
ERASING = "s:erasing"
"""Item with the ids of messages to be erased, in place of routes."""


async def find(session: Session, ids: Sequence[str]) -> list[Message | None]:
    found = await _known(session, ids)
    return [found[one].message if one in found else None for one in ids]


async def get(session: Session, message_id: str) -> tuple[Message, list[Event]] | None:
    loaded = (await _known(session, [message_id])).get(message_id)
    if loaded is None:
        return None
    return loaded.message, lines_of(loaded.message, loaded.record.noted)


async def _known(session: Session, ids: Sequence[str]) -> dict[str, Loaded]:
    """Read messages, without expired ones that DynamoDB has not deleted yet."""
    found = await session.read(ids) if ids else {}
    if session.exact:
        return found
    now = session.clock.now()
    return {one: loaded for one, loaded in found.items() if not is_forgotten(loaded.item, now)}


async def purge(session: Session, now: int, limit: int) -> int:
    """Delete messages past their retention if `forget=exact`; otherwise DynamoDB deletes them."""
    if not session.exact:
        return 0
    ids = await session.near.retired(now, session.retention, session.retention_count, limit)
    if not ids:
        return 0
    found = await session.read(ids)
    settled = [loaded for loaded in found.values() if loaded.message.state in PURGEABLE]
    await session.remove(settled)
    await session.near.unretire(ids)
    return len(ids)


async def pause(session: Session, route: str, paused: bool) -> None:
    """Write it to the table first, then to Redis, where claims read it."""
    await note_routes(session, PAUSED, [route], gone=not paused)
    await copy_paused(session)
    if not paused:
        await session.near.tell(route, session.clock.now())


async def copy_paused(session: Session, *, use: bool = False) -> None:
    """Copy the paused routes into Redis, which ignores a copy of an earlier version.

    With `use` its partitions are opened for use, as they must be once Redis has lost its data.
    """
    item = (await session.table.get([PAUSED])).get(PAUSED, {})
    version = int(item["v"]["N"]) if "v" in item else 0
    await session.near.open(_routes_of(item), version, use=use)


async def paused_routes(session: Session) -> frozenset[str]:
    return await names(session, PAUSED)


async def known_routes(session: Session) -> frozenset[str]:
    """Every route that ever had a message."""
    return await names(session, ROUTES)


async def names(session: Session, pk: str) -> frozenset[str]:
    """The names in an item."""
    return _routes_of((await session.table.get([pk])).get(pk, {}))


def _routes_of(item: Item) -> frozenset[str]:
    return frozenset(item["routes"]["SS"]) if "routes" in item else frozenset()


async def erasures(session: Session, add: Sequence[str], remove: Sequence[str]) -> list[str]:
    if add:
        await note_routes(session, ERASING, add)
    if remove:
        await note_routes(session, ERASING, remove, gone=True)
    return sorted(await names(session, ERASING))


async def note_routes(
    session: Session, pk: str, routes: Sequence[str], *, gone: bool = False
) -> None:
    """Add names to an item, or remove them; its version counts the changes."""
    await session.table.update(
        pk,
        "DELETE #r :routes ADD #v :one" if gone else "ADD #r :routes, #v :one",
        ExpressionAttributeNames={"#r": "routes", "#v": "v"},
        ExpressionAttributeValues={":routes": {"SS": sorted(set(routes))}, ":one": {"N": "1"}},
    )


class Routes:
    """Records every route before its first message is put."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._noted: frozenset[str] = frozenset()

    async def note(self, routes: frozenset[str]) -> None:
        if routes <= self._noted:
            return
        self._noted |= await known_routes(self._session)
        if new := sorted(routes - self._noted):
            await note_routes(self._session, ROUTES, new)
            self._noted |= frozenset(new)
