"""SETTLE: end leases by what came of the send; a stale token changes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from penstock.model import lifecycle
from penstock.model.lifecycle import Record
from penstock.model.outcome import Settlement
from penstock.model.state import PURGEABLE, State
from penstock.stores.sqlite import statements
from penstock.stores.sqlite.rows import decided_column, json_array
from penstock.stores.sqlite.session import Session

_DELIVERED = State.DELIVERED


def settle(session: Session, settlements: Sequence[Settlement], now: int) -> list[State | None]:
    """The delivered of a lease go in one statement if policies said the same of them, the rest
    one by one."""
    states: list[State | None] = [None] * len(settlements)
    delivered: defaultdict[tuple[int, str | None], list[int]] = defaultdict(list)
    retired: list[int] = []
    for place, settlement in enumerate(settlements):
        if settlement.state is _DELIVERED:
            delivered[settlement.token, settlement.allowed].append(place)
        else:
            states[place] = _settle_one(session, settlement, now, retired)
    for (token, _), places in delivered.items():
        for place in _deliver(session, settlements, places, token, now, retired):
            states[place] = _DELIVERED
    session.retire(retired, now)
    return states


def _deliver(
    session: Session,
    settlements: Sequence[Settlement],
    places: list[int],
    token: int,
    now: int,
    retired: list[int],
) -> list[int]:
    """`lifecycle.settle` of many delivered messages at once.

    The places of those that still were under this token, each message once.
    """
    seqs = [settlements[place].message.ref for place in places]
    kept = decided_column(settlements[places[0]].kept)
    values = {"seqs": json_array(seqs), "token": token, "now": now, "decided": kept}
    hit = [row[0] for row in session.execute(statements.SETTLE_DELIVERED, values).fetchall()]
    if not hit:
        return []
    retired += hit
    session.close_leases(token, len(hit))
    if len(hit) == len(places):
        return places
    left = set(hit)
    current = []
    for place, seq in zip(places, seqs, strict=True):
        if seq in left:
            left.discard(seq)
            current.append(place)
    return current


def _settle_one(
    session: Session, settlement: Settlement, now: int, retired: list[int]
) -> State | None:
    row = session.execute(statements.LEASE_OF, (settlement.message.ref,)).fetchone()
    if row is None:
        return None
    token, cancel_pending = row
    message = settlement.message  # as it was claimed: under a lease only a cancel is noted
    if cancel_pending:
        message = replace(message, cancel_pending=True)
    record = Record(message, token)
    step = lifecycle.settle(record, settlement, now)
    if step.record is record or record.token is None:
        return step.answer
    session.write(step)
    session.close_leases(record.token, 1)
    if step.answer in PURGEABLE:
        retired.append(record.message.ref)
    return step.answer
