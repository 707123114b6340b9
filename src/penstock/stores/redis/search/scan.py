"""The search that needs no index: through all records, a bounded piece a page, in no order."""

from __future__ import annotations

from penstock.model.errors import Malformed
from penstock.model.message import Message
from penstock.model.query import Cursor, Filter, Page
from penstock.model.size import Filling
from penstock.model.times import MAX_TIME
from penstock.redis_kit.connect import Argument
from penstock.redis_kit.runner import Group
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.messages.ids import pack_id
from penstock.stores.redis.messages.records import NUMBERS, Held, unpack
from penstock.stores.redis.session import Session

_SCAN = Script("stores/redis/search/scan.lua")

STEPS = 20
"""Steps of one page."""
LOOKED_AT = 500
"""Records one step looks at, about; fewer where they are large."""
_MARK = "\0"
"""Begins the id of a cursor that is a place in the scan and not a message: no id has it."""


def matches(message: Message, where: Filter) -> bool:
    return (
        (where.state is None or message.state is where.state)
        and (where.route is None or message.route == where.route)
        and (where.key is None or message.key == where.key)
        and (where.due_from is None or message.due >= where.due_from)
        and (where.due_to is None or message.due < where.due_to)
        and (where.error is None or where.error in (message.last_error or ""))
    )


def is_scan(cursor: Cursor) -> bool:
    return cursor.id.startswith(_MARK)


def begin_scan(after: Cursor | None) -> Cursor:
    """Everything after a place in order, from now on without order."""
    due, message_id = (0, "") if after is None else (after.due, after.id)
    return _cursor(due, 0, "0", "", message_id)


def _cursor(due: int, partition: int, position: str, within: str, after: str) -> Cursor:
    """`within`: how much the step looks at in which a page ended, and the last id of it."""
    return Cursor(due, f"{_MARK}{partition}:{position}:{within}:{after}")


async def scan(session: Session, where: Filter, cursor: Cursor, limit: int) -> Page:
    """A page, short when little matched in the steps of one page.

    A step gives its matches in order of id; when a page is full in the middle of one, the next
    page takes the same step again and leaves out the ids up to that one.
    """
    try:
        partition_text, position, within, after = cursor.id.removeprefix(_MARK).split(":", 3)
        looked_at, _, last_text = within.partition(".")
        partition, number, last = int(partition_text), int(looked_at or 0), bytes.fromhex(last_text)
    except ValueError as exc:
        raise Malformed("cursor: not one that a list returned", field="cursor") from exc
    floor = (cursor.due, pack_id(after))
    page: Filling[Message] = Filling(limit)
    for _ in range(STEPS):
        if partition >= session.layout.total:
            return Page(_in_order(page.items))
        number = number or page.next_read(LOOKED_AT)
        step = await _step(session, where, partition, position, floor, number)
        following, found, looked, size = step
        page.have_read(looked, size)
        for member in sorted(found):
            if member <= last:
                continue
            if not page.add(found[member]):
                within = f"{number}.{last.hex()}"
                place = _cursor(cursor.due, partition, position, within, after)
                return Page(_in_order(page.items), place)
            last = member
        position, number, last = following, 0, b""
        if position == "0":
            partition += 1
    place = _cursor(cursor.due, partition, position, "", after)
    return Page(_in_order(page.items), place, cut=True)


def _in_order(items: list[Message]) -> list[Message]:
    return sorted(items, key=lambda message: (message.due, message.id))


async def _step(
    session: Session,
    where: Filter,
    partition: int,
    position: str,
    floor: tuple[int, bytes],
    number: int,
) -> tuple[str, dict[bytes, Message], int, int]:
    """Where the next one begins, what matched, and the number and bytes of records looked at."""
    keys = session.layout.keys(partition)
    due_from = max(floor[0], where.due_from or 0)
    due_to = MAX_TIME if where.due_to is None else where.due_to - 1
    state = "" if where.state is None else NUMBERS[where.state]
    common: list[Argument] = [position, number, state, where.route or "", due_from, due_to]
    group = Group(partition, (keys.records, keys.leases))
    following, looked, size, *flat = await session.runner.single(_SCAN, group, common, writes=False)
    found: dict[bytes, Message] = {}
    for member, record, lease in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
        message = unpack(member, Held(partition, record, lease))
        if (message.due, member) > floor and matches(message, where):
            found[member] = message
    return following.decode(), found, looked, size
