"""Counters, paces and reservations in the tables: load the rows of a batch, write the changed ones.

Rows last read or written stay in memory, because most decisions are concluded a moment later. They
are valid until another process writes counters or a transaction is rolled back. A row of `accounts`
is written when its sends change. Reservations are in `holds`, one row per batch and not one per
account: the row is deleted when the last message of the batch has ended, and a reader of an account
adds the reservations of these rows to it, so that a crash loses none. The statements are in
policies.sql.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain, repeat
from typing import TypeAlias

import msgspec

from penstock.limits.books import Account, Books, Held, Needs, account_of, open_counters
from penstock.limits.counter import Counter
from penstock.limits.engine import is_ended_by
from penstock.limits.pace import PaceState
from penstock.limits.rules import Rules
from penstock.model.decision import Conclusion, Subject
from penstock.stores.sql.tx import Tx

_encode = msgspec.msgpack.Encoder().encode
_counters = msgspec.msgpack.Decoder(list[Counter])
_held = msgspec.msgpack.Decoder(list[Held])
_ids = msgspec.msgpack.Decoder(list[str])
DAY_MS = 86_400_000
KEPT = 5_000
"""Approximate number of accounts in memory, besides those with reservations."""

_pace = msgspec.msgpack.Decoder(PaceState)


class Ledger:
    """The accounts of one connection, as the transaction under way sees them."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        """Every known account, the most recently used last; with all their reservations."""
        self._holds = Holds()
        self._seen: tuple[object, int] | None = None
        self._mark = -1
        """The mark of the last change that is known here."""
        self._scanned = ""
        """The last account that was checked for deletion."""

    def load(self, tx: Tx, needs: Needs) -> Books:
        """The books of the batch; the caller must write its changes, or roll back."""
        books = load_paces(tx, needs.paces) if needs.paces else Books()
        if needs.keys:
            books.suppressed = load_suppressed(tx, needs.keys)
        books.accounts = self.accounts(tx, needs.accounts)
        return books

    def accounts(self, tx: Tx, names: Collection[str]) -> dict[str, Account]:
        """Every known account, with at least these; one without a row is empty."""
        self._check(tx)
        known = self._accounts
        missing = [name for name in names if name not in known]
        if missing:
            for name, counters in tx.query("accounts", {"names": tx.array(missing)}):
                known[name] = unpack_account(counters)
            for name in self._holds.unseen(missing):
                self._holds.lay_over(known.setdefault(name, {}), name)
        return known

    def decided(
        self,
        tx: Tx,
        places: list[Place],
        books: Books,
        rules: Rules,
        now: int,
        until: int,
    ) -> None:
        """Write the decisions about these messages, which replace their previous reservations."""
        changed = self._holds.end(tx, places)
        if books.held:
            self._holds.add(tx, books.held, until)
        self._write(tx, books, rules, now, changed=changed or bool(books.held))

    def concluded(self, tx: Tx, places: list[Place], books: Books, rules: Rules, now: int) -> None:
        """Write how these ended."""
        changed = self._holds.end(tx, places)
        self._write(tx, books, rules, now, changed=changed)

    def ended_by(self, conclusions: Sequence[Conclusion]) -> list[Place]:
        """The places whose reservations end, without those of a later lease."""
        return places_of([one.subject for one in conclusions if self._holds.are_ended_by(one)])

    def forget(self, tx: Tx, now: int, limit: int) -> None:
        """Delete outdated counters: a few accounts per call, in turn."""
        self._check(tx)
        changed = self._holds.forget(tx, now)
        rows = tx.query("scan_accounts", (self._scanned, limit))
        self._scanned = rows[-1][0] if len(rows) == limit else ""
        stale = [name for name, day in rows if day <= now // DAY_MS]
        if stale:
            tx.execute("drop_accounts", {"names": tx.array(stale)})
        if changed or stale:
            self._note_change(tx)

    def drop(self, tx: Tx, name: str) -> int:
        """Forget one account; how many counters there were in it."""
        counters = len(self.accounts(tx, [name]).get(name, ()))
        tx.execute("drop_accounts", {"names": tx.array([name])})
        self._note_change(tx)
        self._seen = None  # reservations are added to the rows read next
        return counters

    def _write(self, tx: Tx, books: Books, rules: Rules, now: int, *, changed: bool) -> None:
        if books.changed_accounts:
            stale = (now + rules.keeps) // DAY_MS + 1
            names = sorted(books.changed_accounts)
            accounts = map(self._accounts.__getitem__, names)
            packed = map(bytearray, pack_accounts(accounts, rules))  # bytes would bind more slowly
            values = list(chain.from_iterable(zip(names, repeat(stale), packed, strict=False)))
            tx.bulk("put_account", values, 3, counted=False)
        for name in books.changed_paces:
            tx.execute("put_pace", (name, bytearray(_encode(books.paces[name]))))
        if changed or books.changed_accounts:
            self._note_change(tx)
            self._bound()

    def _check(self, tx: Tx) -> None:
        """Forget the cached rows when they may differ from those of the transaction."""
        seen = (tx.foreign_version(), tx.rollbacks)
        if seen == self._seen:
            return
        row = tx.one("ledger_mark")
        mark = 0 if row is None else int(row[0])
        rolled_back = self._seen is None or self._seen[1] != tx.rollbacks
        if rolled_back or mark != self._mark:
            self._accounts.clear()
            self._holds.read(tx)
            self._mark = mark
        self._seen = seen

    def _note_change(self, tx: Tx) -> None:
        """Change the mark by which other processes see that their cached counters are outdated."""
        self._mark = tx.new_token()
        tx.execute("set_meta", ("ledger", str(self._mark)))

    def _bound(self) -> None:
        if len(self._accounts) > KEPT + len(self._holds):
            needed = self._holds.accounts()
            for name in list(self._accounts)[: len(self._accounts) - KEPT // 2]:
                if name not in needed:  # the tables alone do not have their places
                    del self._accounts[name]


def load_paces(tx: Tx, names: Collection[str]) -> Books:
    books = Books()
    rows = tx.query("paces", {"names": tx.array(list(names))})
    books.paces = {name: _pace.decode(state) for name, state in rows}
    return books


def load_suppressed(tx: Tx, keys: Collection[str]) -> dict[str, Collection[str]]:
    """Key → the lists it is on, for keys that are on any."""
    lists: dict[str, list[str]] = {}
    for key, list_id in tx.query("suppressed", {"keys": tx.array(list(keys))}):
        lists.setdefault(key, []).append(list_id)
    return dict(lists)


# --- the counters of one key as a row keeps them -------------------------------------------
#
# A message counts in every cap of its key alike, so these are mostly one counter under several
# names, and a row is a list of counters with their names.


def pack_account(account: Account) -> bytes:
    return _encode(list({id(counter): counter for counter in account.values()}.values()))


def pack_accounts(accounts: Iterable[Account], rules: Rules) -> list[bytes]:
    """Pack each account without the counters of dropped policies. Most accounts have one counter,
    all of the same names: these are checked once.
    """
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
    counters = _counters.decode(packed)
    if len(counters) == 1:
        return dict.fromkeys(counters[0].names, counters[0])
    return {name: counter for counter in counters for name in counter.names}


# --- reservations --------------------------------------------------------------------------

Place: TypeAlias = tuple[str, str]
"""The key and the id of a message: a forgotten id may be used again with another key, and the
reservation of the first message is not that of the second one.
"""


def places_of(subjects: Sequence[Subject]) -> list[Place]:
    return [(subject.key, subject.id) for subject in subjects]


def _places_in(held: list[Held]) -> list[Place]:
    return [place for part in held for place in zip(part.keys, part.ids, strict=True)]


class _Row:
    """The reservations of one batch."""

    __slots__ = ("held", "left", "parted", "until")

    def __init__(self, held: list[Held], until: int, left: int) -> None:
        self.held = held
        self.until = until
        self.left = left
        """Messages that have not ended."""
        self.parted = False
        """True if some have ended; the tables list the rest."""


class Holds:
    """The rows of all processes, as the transaction sees them."""

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}
        self._where: dict[Place, int] = {}
        """The row of each."""
        self._unseen: dict[str, list[tuple[int, Place, tuple[tuple[str, ...], ...]]]] = {}
        """Account → (row, place, names of counters) to be laid over it when it is read."""

    def __len__(self) -> int:
        """Messages that hold a place."""
        return len(self._where)

    def read(self, tx: Tx) -> None:
        """Replace everything known by the rows of the table."""
        self._rows, self._where, self._unseen = {}, {}, {}
        ended: dict[int, set[str]] = {}
        for number, ids in tx.query("ended"):
            ended.setdefault(number, set()).update(_ids.decode(ids))
        for number, until, packed in tx.query("reservations"):
            held = _held.decode(packed)
            gone = ended.get(number, set())
            left = [place for place in _places_in(held) if place[1] not in gone]
            row = self._keep(number, held, until, left)
            row.parted = bool(gone)
            for part in held:
                self._lay(number, part, gone)

    def add(self, tx: Tx, held: list[Held], until: int) -> None:
        """Add new reservations; the tables must have none for these messages yet."""
        number = tx.new_token()
        tx.execute("add_reservations", (number, until, bytearray(_encode(held))))
        self._keep(number, held, until, _places_in(held))

    def are_ended_by(self, conclusion: Conclusion) -> bool:
        """True if the row of the message, if it has one, ends by this conclusion."""
        subject = conclusion.subject
        number = self._where.get((subject.key, subject.id))
        return number is None or is_ended_by(conclusion, self._rows[number].until)

    def end(self, tx: Tx, places: list[Place]) -> bool:
        """End these reservations as far as rows have them; False: none of them is in a row."""
        if self._where.keys().isdisjoint(places):
            return False
        numbers = list(map(self._where.pop, places, repeat(0)))
        found: dict[int, list[Place]] = {}
        if numbers.count(numbers[0]) == len(numbers):  # mostly a batch ends as it began
            found[numbers[0]] = places
        else:
            for number, place in zip(numbers, places, strict=True):
                if number:
                    found.setdefault(number, []).append(place)
        for number, gone in found.items():
            row = self._rows[number]
            row.left -= len(gone)
            if row.left == 0:
                self._drop(tx, number)
            else:
                row.parted = True
                ids = [me for _, me in gone]
                values = (number, tx.new_token(), bytearray(_encode(ids)))
                tx.execute("add_ended", values)
        return True

    def lay_over(self, account: Account, name: str) -> None:
        """Add the reservations of the rows to an account that was just read."""
        for number, place, own in self._unseen.pop(name):
            if self._where.get(place) == number:  # it may have ended since
                for names in own:
                    for counter in open_counters(account, names):
                        counter.held[place[1]] = self._rows[number].until

    def unseen(self, names: Sequence[str]) -> Collection[str]:
        """The accounts among these that rows have reservations of."""
        return self._unseen.keys() & set(names) if self._unseen else ()

    def accounts(self) -> set[str]:
        """The accounts that have reservations."""
        found: set[str] = set()
        for row in self._rows.values():
            for part in row.held:
                found.update(map(account_of, part.keys))
                found.update(part.shared)
        return found

    def forget(self, tx: Tx, now: int) -> bool:
        """Drop the rows whose time is over: their messages are not on their way any more."""
        over = [number for number, row in self._rows.items() if row.until <= now]
        for number in over:
            for place in _places_in(self._rows[number].held):
                if self._where.get(place) == number:
                    del self._where[place]
            self._drop(tx, number)
        return bool(over)

    def _keep(self, number: int, held: list[Held], until: int, left: list[Place]) -> _Row:
        self._where.update(dict.fromkeys(left, number))
        row = self._rows[number] = _Row(held, until, len(set(left)))
        return row

    def _drop(self, tx: Tx, number: int) -> None:
        tx.execute("drop_reservations", (number,))
        if self._rows.pop(number).parted:
            tx.execute("drop_ended", (number,))

    def _lay(self, number: int, part: Held, gone: set[str]) -> None:
        unseen = self._unseen
        for key, me in zip(part.keys, part.ids, strict=True):
            if me not in gone:
                place = (key, me)
                if part.own:
                    unseen.setdefault(account_of(key), []).append((number, place, part.own))
                for name in part.shared:
                    unseen.setdefault(name, []).append((number, place, ((name,),)))
