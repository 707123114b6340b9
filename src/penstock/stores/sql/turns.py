"""TURNS: routes with a promise per key: so many in flight at most, or one by one in order.

For such routes a table has for every key the moment of its next claim, if any: a claim reads that
and never the backlog of a busy key. Triggers maintain it (turns.sql), and exist only in databases
with such a route. Keys are served by the due of their next message; priority plays no part here.
"""

from __future__ import annotations

from penstock.model.outcome import Claim
from penstock.model.route import KeyLimit
from penstock.model.size import ANY_SIZE, fitting
from penstock.stores.sql.messages import lease_rows
from penstock.stores.sql.tx import Tx


def prepare(tx: Tx, route: str, limit: KeyLimit) -> None:
    """Keep turns for the route from now on; messages it holds already are reckoned in."""
    tx.make_turns()
    tx.lock_turns(route)
    wanted = (limit.in_flight, int(limit.ordered))
    if tx.one("registered", (route,)) != wanted:
        tx.execute("register", (route, *wanted))
        tx.execute("touch_route", (route,))


def claim(
    tx: Tx,
    route: str,
    limit: int,
    lease: int,
    now: int,
    per_key: KeyLimit,
    max_bytes: int = ANY_SIZE,
) -> Claim:
    """Lease due messages whose key has its turn."""
    if limit <= 0 or tx.one("is_paused", (route,)):
        return Claim(0)
    tx.lock_turns(route)
    heads: list[tuple[int, int]] = []
    total = 0
    for (key,) in tx.query("due_keys", (route, now, limit)):
        more = _heads(tx, route, key, now, per_key)[: limit - len(heads)]
        heads += more
        total += sum(size for _, size in more)
        if len(heads) == limit or total > max_bytes:
            break
    seqs = [seq for seq, _ in heads[: fitting((size for _, size in heads), max_bytes)]]
    stopped = len(seqs) < len(heads)
    rows = tx.query("chosen", {"seqs": tx.array(seqs), "now": now}) if seqs else []
    token, messages = lease_rows(tx, route, rows, lease, now)
    next_due = None
    if len(messages) < limit and not stopped:
        (next_due,) = tx.one("next_turn_due", (route,))
    return Claim(token, messages, next_due, stopped)


def _heads(tx: Tx, route: str, key: str, now: int, per_key: KeyLimit) -> list[tuple[int, int]]:
    """The messages of the key that may go next, and are due, with the size of each."""
    (leased,) = tx.one("leased_of_key", (route, key))
    values = {"route": route, "key": key}
    if per_key.ordered and (begun := tx.one("begun_of_key", values)) is not None:
        seq, size, due = begun
        return [(seq, size)] if due <= now else []
    room = max(0, per_key.in_flight - leased)
    return tx.query("waiting_of_key", {**values, "now": now, "room": room})
