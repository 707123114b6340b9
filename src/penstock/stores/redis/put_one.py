"""PUT of one message by itself: the shortest way, for what is new and has nothing special about it.

Whoever puts one after another waits for every call, so what a call costs on its way counts more
than what many could share.
"""

from __future__ import annotations

from penstock.model.message import NewMessage
from penstock.model.outcome import Receipt
from penstock.model.state import State
from penstock.stores.redis.ids import pack_id
from penstock.stores.redis.place import bucket_entry, spot_for
from penstock.stores.redis.records import NewPacker
from penstock.stores.redis.session import Session
from penstock.stores.redis.wake import news_of


async def put_one(session: Session, message: NewMessage, now: int) -> Receipt | None:
    """Its receipt; None: nothing was written, and `put` finds out why."""
    layout, route, due = session.layout, message.route, message.due
    if layout.older or route in layout.keyed or message.blocked is not None:
        return None
    partition = layout.home(message.id)
    keys, generation, member = layout.keys(partition), layout.generation, pack_id(message.id)
    bucket = session.bucket_for(due, now)
    spot = spot_for(keys, route, message.priority, bucket)
    packer = NewPacker(
        route, message.priority, now=now, generation=generation, edition=session.edition()
    )
    (record,) = packer.pack((message,))
    used = [keys.generation, keys.records, keys.counters, keys.by_key, spot.key]
    if bucket is None or spot.index_key is None:
        more: tuple[bytes | str, ...] = (session.wakeups.channel, news_of(route, due))
    else:
        used.append(spot.index_key)
        more = bucket_entry(bucket, due, member), spot.member
    keyed = b"" if message.key == message.id else message.key.encode() + b"\0" + member
    kept = await session.runner.direct(
        "put_one", partition, used, generation, member, record, keyed, spot.counter, due, *more
    )
    if not kept:
        return None
    session.wakeups.tell(route, due)
    return Receipt(message.id, State.SCHEDULED, due)
