"""The counters of one key as a row keeps them.

A message counts in every cap of its key alike, so these are mostly one counter under several
names, and a row is a list of counters with their names. Files from before have a map of counters,
or what is held apart from what was sent: all are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from penstock.limits.books import Account
from penstock.limits.counter import Counter
from penstock.limits.rules import Rules

Sends: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]
"""Times, counts and the last of them."""


class _Sheet(msgspec.Struct, array_like=True, gc=False):
    held: dict[str, int]
    """What the counters of `alike` have in common."""
    alike: dict[str, Sends]
    others: dict[str, Counter]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Counter]).decode
_decode_older = msgspec.msgpack.Decoder(_Sheet | dict[str, Counter]).decode


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
    try:
        counters = _decode(packed)
    except msgspec.ValidationError:
        return _unpack_older(packed)
    if len(counters) == 1:
        return dict.fromkeys(counters[0].names, counters[0])
    return {name: counter for counter in counters for name in counter.names}


def _unpack_older(packed: bytes) -> Account:
    sheet: _Sheet | Account = _decode_older(packed)
    account = sheet if isinstance(sheet, dict) else sheet.others
    if isinstance(sheet, _Sheet):
        for name, (times, counts, last) in sheet.alike.items():
            account[name] = Counter(times, counts, sheet.held.copy(), last)
    for name, counter in account.items():
        counter.names = (name,)
    return account
