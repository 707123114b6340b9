"""The counters of one key as a row keeps them.

A message counts in every cap of its key alike, so these are mostly one counter under several
names, and a row is a list of counters with their names.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.limits.books import Account
from penstock.limits.counter import Counter
from penstock.limits.rules import Rules

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Counter]).decode


def pack_account(account: Account) -> bytes:
    return _encode(list({id(counter): counter for counter in account.values()}.values()))


def pack_accounts(accounts: Iterable[Account], rules: Rules) -> list[bytes]:
    """Each without the counters of policies that were dropped. Mostly an account is one counter,
    and all of them have the same names: these are looked at once."""
    alive: set[tuple[str, ...]] = set()
    latest: tuple[str, ...] | None = None
    encode, packed = _encode, []
    for account in accounts:
        for counter in account.values():
            names = counter.names
            if (names is latest or names in alive) and len(names) == len(account):
                latest = names
                packed.append(encode((counter,)))
            else:
                packed.append(pack_account(rules.living(account)))
                alive.update(left.names for left in account.values())
            break
        else:
            packed.append(encode(()))
    return packed


def unpack_account(packed: bytes) -> Account:
    counters = _decode(packed)
    if len(counters) == 1:
        return dict.fromkeys(counters[0].names, counters[0])
    return {name: counter for counter in counters for name in counter.names}
