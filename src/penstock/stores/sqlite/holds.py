"""Places held by messages on their way: one row a batch, not one an account.

What a batch holds is written down once when it is decided, and its row goes when the last of its
messages has ended. The counters themselves are in memory meanwhile; whoever has to read them from
the tables lays the rows that are there over them, so that a crash loses no place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import repeat

import msgspec

from penstock.limits.books import Account, Held, account_of, open_counters
from penstock.stores.sqlite import policy_statements as statements
from penstock.stores.sqlite.session import Session

_encode = msgspec.msgpack.Encoder().encode
_held = msgspec.msgpack.Decoder(list[Held])
_ids = msgspec.msgpack.Decoder(list[str])


class _Row:
    """One batch."""

    __slots__ = ("held", "left", "parted", "until")

    def __init__(self, held: list[Held], until: int, left: int) -> None:
        self.held = held
        self.until = until
        self.left = left
        """Messages that have not ended."""
        self.parted = False
        """Some have, and the tables say which."""


class Holds:
    """The rows of all processes, as the transaction sees them."""

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}
        self._where: dict[str, int] = {}
        """Message id → its row."""
        self._unseen: dict[str, list[tuple[int, str, tuple[tuple[str, ...], ...]]]] = {}
        """Account → (row, message id, names of counters) to be laid over it when it is read."""

    def __len__(self) -> int:
        """Messages that hold a place."""
        return len(self._where)

    def read(self, session: Session) -> None:
        """What the tables say, in place of everything known."""
        self._rows, self._where, self._unseen = {}, {}, {}
        ended: dict[int, set[str]] = {}
        for number, ids in session.execute(statements.ENDED):
            ended.setdefault(number, set()).update(_ids.decode(ids))
        for number, until, packed in session.execute(statements.HOLDS):
            held = _held.decode(packed)
            gone = ended.get(number, set())
            open_ids = [me for part in held for me in part.ids if me not in gone]
            row = self._keep(number, held, until, open_ids)
            row.parted = bool(gone)
            for part in held:
                self._lay(number, part, gone)

    def add(self, session: Session, held: list[Held], until: int) -> None:
        """Nobody of these has a place already that the tables know of here."""
        number = session.new_token()
        session.execute(statements.ADD_HOLDS, (number, until, bytearray(_encode(held))))
        self._keep(number, held, until, [me for part in held for me in part.ids])

    def end(self, session: Session, ids: list[str]) -> bool:
        """These hold no more what their rows say; False: none of them is in a row."""
        if self._where.keys().isdisjoint(ids):
            return False
        numbers = list(map(self._where.pop, ids, repeat(0)))
        found: dict[int, list[str]] = {}
        if numbers.count(numbers[0]) == len(numbers):  # mostly a batch ends as it began
            found[numbers[0]] = ids
        else:
            for number, me in zip(numbers, ids, strict=True):
                if number:
                    found.setdefault(number, []).append(me)
        for number, gone in found.items():
            row = self._rows[number]
            row.left -= len(gone)
            if row.left == 0:
                self._drop(session, number)
            else:
                row.parted = True
                values = (number, session.new_token(), bytearray(_encode(gone)))
                session.execute(statements.END_HOLDS, values)
        return True

    def lay_over(self, account: Account, name: str) -> None:
        """Of an account that was just read."""
        for number, me, own in self._unseen.pop(name):
            if self._where.get(me) == number:  # it may have ended meanwhile
                for names in own:
                    for counter in open_counters(account, names):
                        counter.held[me] = self._rows[number].until

    def unseen(self, names: Sequence[str]) -> Collection[str]:
        """Of these accounts the ones that something has to be laid over."""
        return self._unseen.keys() & set(names) if self._unseen else ()

    def accounts(self) -> set[str]:
        """Those in which a place is held."""
        found: set[str] = set()
        for row in self._rows.values():
            for part in row.held:
                found.update(map(account_of, part.keys))
                found.update(part.shared)
        return found

    def forget(self, session: Session, now: int) -> bool:
        """Drop the rows whose time is over: their messages are not on their way any more."""
        over = [number for number, row in self._rows.items() if row.until <= now]
        for number in over:
            for me in [me for part in self._rows[number].held for me in part.ids]:
                if self._where.get(me) == number:
                    del self._where[me]
            self._drop(session, number)
        return bool(over)

    def _keep(self, number: int, held: list[Held], until: int, ids: list[str]) -> _Row:
        self._where.update(dict.fromkeys(ids, number))
        row = self._rows[number] = _Row(held, until, len(set(ids)))
        return row

    def _drop(self, session: Session, number: int) -> None:
        session.execute(statements.DROP_HOLDS, (number,))
        if self._rows.pop(number).parted:
            session.execute(statements.DROP_ENDED, (number,))

    def _lay(self, number: int, part: Held, gone: set[str]) -> None:
        unseen = self._unseen
        for key, me in zip(part.keys, part.ids, strict=True):
            if me not in gone:
                if part.own:
                    unseen.setdefault(account_of(key), []).append((number, me, part.own))
                for name in part.shared:
                    unseen.setdefault(name, []).append((number, me, ((name,),)))
