"""PUT of one message by itself: the shortest way, for what is new and has nothing special about it.

Whoever puts one after another waits for every call, so what a call costs on its way counts more
than what many could share. What calls to one place have in common is packed once.
"""

from __future__ import annotations

from penstock.model.message import NewMessage
from penstock.model.outcome import Receipt
from penstock.model.state import State
from penstock.redis_kit.runner import Prepared
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.messages.buckets import OFFSET, Bucket, spot_for
from penstock.stores.redis.messages.ids import pack_id
from penstock.stores.redis.messages.records import NewPacker
from penstock.stores.redis.session import Session

PUT_ONE = Script("stores/redis/messages/put_one.lua")

_SCHEDULED = State.SCHEDULED  # an attribute of an enumeration takes its time
MAX_PLACES = 1_000
"""Places whose calls are kept; of all there are, few are put to at one time."""


async def put_one(session: Session, message: NewMessage, now: int) -> Receipt | None:
    """Its receipt; None: nothing was written, and `put` finds out why."""
    layout, route, due, message_id = session.layout, message.route, message.due, message.id
    ends = message.blocked is not None or message.dead is not None
    if layout.older or route in layout.keyed or ends:
        return None
    generation, priority, member = layout.generation, message.priority, pack_id(message_id)
    partition = layout.home(message_id)
    width = session.widths.width_for(due, now)
    start = due - due % width if width else 0
    place = generation, partition, route, priority, width, start
    call = session.calls.get(place) or _prepare(session, *place)
    packer = NewPacker(route, priority, now=now, generation=generation, edition=session.edition())
    (record,) = packer.pack((message,))
    keyed = b"" if message.key == message_id else message.key.encode() + b"\0" + member
    when = b"%d" % due
    if width:
        when = OFFSET.pack(due - start) + when
    if not await session.runner.call_prepared(call, member, record, keyed, when):
        return None
    session.wakeups.tell(route, due)
    return Receipt(message_id, _SCHEDULED, due)


def _prepare(
    session: Session,
    generation: int,
    partition: int,
    route: str,
    priority: int,
    width: int,
    start: int,
) -> Prepared:
    """The call that puts to this place, kept for the next one."""
    keys = session.layout.keys(partition)
    spot = spot_for(keys, route, priority, Bucket(width, start) if width else None)
    used = [keys.generation, keys.records, keys.counters, keys.by_key, spot.key]
    if spot.index_key is None:
        where = session.wakeups.channel, route
    else:
        used.append(spot.index_key)
        where = spot.member, ""
    call = session.runner.prepare(PUT_ONE, partition, used, generation, spot.counter, *where)
    if len(session.calls) >= MAX_PLACES:
        session.calls.clear()
    session.calls[generation, partition, route, priority, width, start] = call
    return call
