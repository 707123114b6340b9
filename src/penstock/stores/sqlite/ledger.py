"""Counters and paces in the tables: load what a batch needs, write back what it changed.

What was read or written last stays in memory, because what is decided is mostly concluded a moment
later. It holds for as long as nobody else has written counters and nothing was rolled back. A row
is written when its sends change; places held meanwhile are in `holds`.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain, repeat

import msgspec

from penstock.limits.books import Account, Books, Needs
from penstock.limits.pace import PaceState
from penstock.limits.rules import Rules
from penstock.stores.sqlite import policy_statements as statements
from penstock.stores.sqlite.account import pack_accounts, unpack_account
from penstock.stores.sqlite.holds import Holds
from penstock.stores.sqlite.rows import json_array
from penstock.stores.sqlite.session import Session

DAY_MS = 86_400_000
KEPT = 5_000
"""Accounts that stay in memory, about, besides those in which a place is held."""

_encode = msgspec.msgpack.Encoder().encode
_pace = msgspec.msgpack.Decoder(PaceState)


class Ledger:
    """The accounts of one connection, as the transaction under way sees them."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        """Everything known, those used last at the end; with every place that is held."""
        self._holds = Holds()
        self._seen: tuple[int, int] | None = None
        self._mark = -1
        """Of the last change that is known here."""
        self._scanned = ""
        """The last account that was looked at to be forgotten."""

    def load(self, session: Session, needs: Needs) -> Books:
        """What the batch needs; what it changes is to be written, or to be rolled back."""
        books = load_paces(session, needs.paces) if needs.paces else Books()
        if needs.keys:
            books.suppressed = load_suppressed(session, needs.keys)
        books.accounts = self.accounts(session, needs.accounts)
        return books

    def accounts(self, session: Session, names: Collection[str]) -> dict[str, Account]:
        """Everything known, with at least these; one that is not there has nothing in it."""
        self._check(session)
        known = self._accounts
        missing = [name for name in names if name not in known]
        if missing:
            rows = session.execute(statements.ACCOUNTS, (json_array(missing),))
            for name, counters in rows:
                known[name] = unpack_account(counters)
            for name in self._holds.unseen(missing):
                self._holds.lay_over(known.setdefault(name, {}), name)
        return known

    def decided(
        self,
        session: Session,
        ids: list[str],
        books: Books,
        rules: Rules,
        now: int,
        until: int,
    ) -> None:
        """Write what was decided about these: whatever they held before is decided anew."""
        changed = self._holds.end(session, ids)
        if books.held:
            self._holds.add(session, books.held, until)
        self._write(session, books, rules, now, changed=changed or bool(books.held))

    def concluded(
        self, session: Session, ids: list[str], books: Books, rules: Rules, now: int
    ) -> None:
        """Write how these ended."""
        changed = self._holds.end(session, ids)
        self._write(session, books, rules, now, changed=changed)

    def forget(self, session: Session, now: int, limit: int) -> None:
        """Drop what cannot matter any more: a few accounts after the others, round and round."""
        self._check(session)
        changed = self._holds.forget(session, now)
        rows = session.execute(statements.SCAN, (self._scanned, limit)).fetchall()
        self._scanned = rows[-1][0] if len(rows) == limit else ""
        stale = [name for name, day in rows if day <= now // DAY_MS]
        if stale:
            session.execute(statements.DROP_ACCOUNTS, (json_array(stale),))
        if changed or stale:
            self._note_change(session)

    def drop(self, session: Session, name: str) -> int:
        """Forget one account; how many counters there were in it."""
        counters = len(self.accounts(session, [name]).get(name, ()))
        session.execute(statements.DROP_ACCOUNTS, (json_array([name]),))
        self._note_change(session)
        self._seen = None  # places held are laid over what is read next
        return counters

    def _write(
        self, session: Session, books: Books, rules: Rules, now: int, *, changed: bool
    ) -> None:
        if books.changed_accounts:
            stale = (now + rules.keeps) // DAY_MS + 1
            names = sorted(books.changed_accounts)
            accounts = map(self._accounts.__getitem__, names)
            packed = map(bytearray, pack_accounts(accounts, rules))  # bytes would bind more slowly
            values = list(chain.from_iterable(zip(names, repeat(stale), packed, strict=False)))
            session.counters_written += session.write_rows(statements.put_accounts, values, 3)
        for name in books.changed_paces:
            session.execute(statements.PUT_PACE, (name, bytearray(_encode(books.paces[name]))))
        if changed or books.changed_accounts:
            self._note_change(session)
            self._bound()

    def _check(self, session: Session) -> None:
        """Forget everything when it may be other than what the transaction sees."""
        (version,) = session.execute(statements.DATA_VERSION).fetchone()
        seen = (version, session.rollbacks)
        if seen == self._seen:
            return
        row = session.execute(statements.LEDGER).fetchone()
        mark = 0 if row is None else int(row[0])
        rolled_back = self._seen is None or self._seen[1] != session.rollbacks
        if rolled_back or mark != self._mark:
            self._accounts.clear()
            self._holds.read(session)
            self._mark = mark
        self._seen = seen

    def _note_change(self, session: Session) -> None:
        """Others see by this that what they know of counters is not right any more."""
        self._mark = session.new_token()
        session.execute(statements.SET_LEDGER, (str(self._mark),))

    def _bound(self) -> None:
        if len(self._accounts) > KEPT + len(self._holds):
            needed = self._holds.accounts()
            for name in list(self._accounts)[: len(self._accounts) - KEPT // 2]:
                if name not in needed:  # the tables alone do not have their places
                    del self._accounts[name]


def load_paces(session: Session, names: Collection[str]) -> Books:
    books = Books()
    rows = session.execute(statements.PACES, (json_array(list(names)),))
    books.paces = {name: _pace.decode(state) for name, state in rows}
    return books


def load_suppressed(session: Session, keys: Collection[str]) -> dict[str, Collection[str]]:
    """Key → the lists it is on, of those that are on any."""
    lists: dict[str, list[str]] = {}
    for key, list_id in session.execute(statements.SUPPRESSED, (json_array(list(keys)),)):
        lists.setdefault(key, []).append(list_id)
    return dict(lists)
