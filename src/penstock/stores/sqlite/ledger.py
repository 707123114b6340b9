"""Counters and paces in the tables: load what a batch needs, write back what it changed."""

from __future__ import annotations

import msgspec

from penstock.limits.books import Account, Books, Needs
from penstock.limits.counter import Counter
from penstock.limits.pace import PaceState
from penstock.limits.rules import Rules
from penstock.stores.sqlite import policy_statements as statements
from penstock.stores.sqlite.rows import json_array
from penstock.stores.sqlite.session import Session

DAY_MS = 86_400_000

_encode = msgspec.msgpack.Encoder().encode
_account = msgspec.msgpack.Decoder(dict[str, Counter])
_pace = msgspec.msgpack.Decoder(PaceState)


def load(session: Session, needs: Needs) -> Books:
    books = load_paces(session, list(needs.paces)) if needs.paces else Books()
    if needs.accounts:
        rows = session.execute(statements.ACCOUNTS, (json_array(list(needs.accounts)),))
        books.accounts = {name: _account.decode(counters) for name, counters in rows}
    if needs.keys:
        lists: dict[str, list[str]] = {}
        rows = session.execute(statements.SUPPRESSED, (json_array(list(needs.keys)),))
        for key, list_id in rows:
            lists.setdefault(key, []).append(list_id)
        books.suppressed.update(lists)
    return books


def load_paces(session: Session, names: list[str]) -> Books:
    books = Books()
    rows = session.execute(statements.PACES, (json_array(names),))
    books.paces = {name: _pace.decode(state) for name, state in rows}
    return books


def load_account(session: Session, name: str) -> Account:
    row = session.execute(statements.ACCOUNTS, (json_array([name]),)).fetchone()
    return {} if row is None else _account.decode(row[1])


def write(session: Session, books: Books, rules: Rules, now: int) -> None:
    if books.changed_accounts:
        stale = (now + rules.keeps) // DAY_MS + 1
        accounts = books.accounts
        session.connection.executemany(
            statements.PUT_ACCOUNT,
            [
                (name, stale, _encode(rules.living(accounts[name])))
                for name in books.changed_accounts
            ],
        )
    for name in books.changed_paces:
        session.execute(statements.PUT_PACE, (name, _encode(books.paces[name])))


def forget(session: Session, now: int, limit: int) -> None:
    """Drop accounts in which nothing can matter any more."""
    session.execute(statements.DROP_STALE, (now // DAY_MS, limit))
