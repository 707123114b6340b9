"""The counters of one key as a row keeps them.

A message holds a place in every cap of its key alike, so what is held is written once for all
counters that agree on it. Files from before have a plain map of counters: both are read.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from penstock.limits.books import Account
from penstock.limits.counter import Counter

Sends: TypeAlias = tuple[list[int], list[int], int]
"""Times, counts and the last of them."""


class _Sheet(msgspec.Struct, array_like=True, gc=False):
    held: dict[str, int]
    """What the counters of `alike` have in common."""
    alike: dict[str, Sends]
    others: dict[str, Counter]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Sheet | dict[str, Counter]).decode


def pack_account(account: Account) -> bytes:
    held: dict[str, int] | None = None
    alike: dict[str, Sends] = {}
    others: dict[str, Counter] = {}
    for name, counter in account.items():
        if held is None:
            held = counter.held
        if counter.held is held or counter.held == held:
            alike[name] = (counter.times, counter.counts, counter.last)
        else:
            others[name] = counter
    return _encode((held or {}, alike, others))


def unpack_account(packed: bytes) -> Account:
    sheet: _Sheet | Account = _decode(packed)
    if isinstance(sheet, dict):
        return sheet
    account = sheet.others
    held = sheet.held
    for name, (times, counts, last) in sheet.alike.items():
        account[name] = Counter(times, counts, held.copy(), last)
    return account
