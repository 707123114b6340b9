"""Counters and paces in the tables: load what a batch needs, write back what it changed.

What was read or written last stays in memory, because what is decided is mostly concluded a moment
later. It holds for as long as nobody else has written to the file and nothing was rolled back.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from penstock.limits.books import Account, Books, Needs
from penstock.limits.pace import PaceState
from penstock.limits.rules import Rules
from penstock.stores.sqlite import policy_statements as statements
from penstock.stores.sqlite.account import pack_account, unpack_account
from penstock.stores.sqlite.rows import json_array
from penstock.stores.sqlite.session import Session

DAY_MS = 86_400_000
KEPT = 5_000
"""Accounts that stay in memory, about."""

_encode = msgspec.msgpack.Encoder().encode
_pace = msgspec.msgpack.Decoder(PaceState)


class Ledger:
    """The accounts of one connection. Only for work that writes: it is alone with the file."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        """Everything known, those used last at the end; an empty one: there is no row."""
        self._stale: dict[str, int] = {}
        """Account → what its row says."""
        self._seen: tuple[int, int] | None = None

    def load(self, session: Session, needs: Needs) -> Books:
        """What the batch needs; what it changes is to be written, or to be rolled back."""
        self._check(session)
        books = load_paces(session, needs.paces) if needs.paces else Books()
        if needs.keys:
            books.suppressed = load_suppressed(session, needs.keys)
        known, wanted = self._accounts, needs.accounts
        missing = [name for name in wanted if name not in known]
        if missing:
            rows = session.execute(statements.ACCOUNTS, (json_array(missing),))
            found = {name: (unpack_account(counters), stale) for name, stale, counters in rows}
            for name, (account, stale) in found.items():
                known[name] = account
                self._stale[name] = stale
        books.accounts = {name: known[name] for name in wanted if name in known}
        return books

    def write(self, session: Session, books: Books, rules: Rules, now: int) -> None:
        if books.changed_accounts:
            stale = (now + rules.keeps) // DAY_MS + 1
            known, written = self._accounts, self._stale
            same, other = [], []
            for name in sorted(books.changed_accounts):
                account = known[name] = rules.living(books.accounts[name])
                row = (name, stale, bytearray(pack_account(account)))  # bytes bind more slowly
                if written.get(name) == stale:
                    same.append(row)
                else:
                    other.append(row)
                    written[name] = stale
            execute_many = session.connection.executemany
            if same:
                execute_many(statements.PUT_COUNTERS, same)
            if other:
                execute_many(statements.PUT_ACCOUNT, other)
            self._bound()
        for name in books.changed_paces:
            session.execute(statements.PUT_PACE, (name, _encode(books.paces[name])))

    def _check(self, session: Session) -> None:
        """Forget everything when it may be other than what the transaction sees."""
        (version,) = session.execute(statements.DATA_VERSION).fetchone()
        seen = (version, session.rollbacks)
        if seen != self._seen:
            self._accounts.clear()
            self._stale.clear()
            self._seen = seen

    def _bound(self) -> None:
        if len(self._accounts) > KEPT:
            for name in list(self._accounts)[: len(self._accounts) - KEPT // 2]:
                del self._accounts[name]
                self._stale.pop(name, None)


def load(session: Session, needs: Needs) -> Books:
    """What the tables say, to be looked at only."""
    books = load_paces(session, needs.paces) if needs.paces else Books()
    if needs.keys:
        books.suppressed = load_suppressed(session, needs.keys)
    if needs.accounts:
        rows = session.execute(statements.ACCOUNTS, (json_array(list(needs.accounts)),))
        books.accounts = {name: unpack_account(counters) for name, _, counters in rows}
    return books


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


def load_account(session: Session, name: str) -> Account:
    row = session.execute(statements.ACCOUNTS, (json_array([name]),)).fetchone()
    return {} if row is None else unpack_account(row[2])


def forget(session: Session, now: int, limit: int) -> None:
    """Drop accounts in which nothing can matter any more."""
    session.execute(statements.DROP_STALE, (now // DAY_MS, limit))
