"""Claims that were committed and whose answer was lost: their messages are returned unsent.

A connection that breaks during a commit leaves the caller without an answer, and a caller that has
waited too long is gone when its answer arrives. Without this, the messages of such a claim would
stay leased, with no worker sending them, until the lease ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.outcome import Settlement
from penstock.model.state import State
from penstock.stores.postgres.session import Session
from penstock.stores.sql import messages as steps
from penstock.stores.sql.messages import from_json_array, to_record


def give_back(tx: Session, tokens: Sequence[int], now: int) -> None:
    """End these leases, as far as there are such: the messages are as they were before."""
    for token in tokens:
        lease = tx.one("lease_of_token", (token,))
        if lease is None:  # the claim was rolled back
            continue
        seqs = tx.array(from_json_array(lease[0]))
        messages = [
            to_record(row).message for row in tx.query("lost", {"seqs": seqs, "token": token})
        ]
        returned = [
            Settlement(one, token, State.SCHEDULED, "returned", due=one.due, refund=True)
            for one in messages
        ]
        steps.settle(tx, returned, now)
