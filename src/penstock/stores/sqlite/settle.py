"""SETTLE: end leases by what came of the send; a stale token changes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from penstock.model.outcome import Settlement
from penstock.model.state import PURGEABLE, State, after_lease
from penstock.stores.sqlite import statements
from penstock.stores.sqlite.lease import end_lease, note_released
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
    """The places of those that still were under this token, each message once."""
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
    held = (settlement.message.ref, settlement.token)
    row = session.execute(statements.LEASED, held).fetchone()
    if row is None:
        return None
    seq, route, due, attempt, claimed, cancel_pending = row
    state = after_lease(settlement.state, cancel_asked=bool(cancel_pending))
    sent = not settlement.refund
    goes_on = settlement.state is State.SCHEDULED
    if sent and (goes_on or settlement.allowed is not None):
        note_released(session, seq, claimed, attempt, cancel_pending, settlement.allowed)
    if settlement.event != settlement.state:
        session.note(seq, now, settlement.event, settlement.detail, attempt if sent else None)
    if settlement.due is not None and state is State.SCHEDULED:
        due = settlement.due
    end_lease(
        session,
        seq,
        state,
        due=due,
        attempt=attempt if sent else attempt - 1,
        claimed=claimed if sent and not goes_on else None,
        now=now,
        error=settlement.error,
        decided=decided_column(settlement.kept),
    )
    session.close_leases(settlement.token, 1)
    if state is State.SCHEDULED:
        session.wake(route, due)
    elif state in PURGEABLE:
        retired.append(seq)
    return state
