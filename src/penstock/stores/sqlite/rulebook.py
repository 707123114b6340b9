"""Policies and suppressions in the tables, and their compiled form while nobody changes them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.limits.rules import Rules
from penstock.model.policy import Policy, RuleBook, Suppression
from penstock.stores.sqlite import policy_statements as statements
from penstock.stores.sqlite.session import Session

_encode = msgspec.json.Encoder().encode
_policy = msgspec.json.Decoder(Policy)
_suppression = msgspec.json.Decoder(Suppression)


class CurrentRules:
    """The rules of the version that the transaction sees; read again only when it is another."""

    def __init__(self, default_zone: str) -> None:
        self._default_zone = default_zone
        self._rules = Rules(RuleBook(), {}, default_zone)

    def get(self, session: Session) -> Rules:
        version = _version(session)
        if version != self._rules.version:
            self._rules = _read(session, version, self._default_zone)
        return self._rules


def put_policy(session: Session, policy_id: str, policy: Policy) -> int:
    body = _encode(policy).decode()
    for known, _, written in session.execute(statements.POLICIES):
        if known == policy_id and written == body:
            return _version(session)
    version = _next_version(session)
    session.execute(statements.PUT_POLICY, (policy_id, version, body))
    return version


def drop_policy(session: Session, policy_id: str) -> bool:
    for known, born, _ in session.execute(statements.POLICIES).fetchall():
        if known == policy_id:
            session.execute(statements.DROP_POLICY, (policy_id,))
            session.execute(statements.DROP_PACE, (str(born),))
            _next_version(session)
            return True
    return False


def put_suppression(session: Session, list_id: str, suppression: Suppression) -> int:
    kept = msgspec.structs.replace(suppression, keys=())
    session.execute(statements.PUT_SUPPRESSION, (list_id, _encode(kept).decode()))
    session.execute(statements.DROP_SUPPRESSED, (list_id,))
    _add(session, list_id, suppression.keys)
    return _next_version(session)


def drop_suppression(session: Session, list_id: str) -> bool:
    if session.execute(statements.DROP_SUPPRESSION, (list_id,)).rowcount == 0:
        return False
    session.execute(statements.DROP_SUPPRESSED, (list_id,))
    _next_version(session)
    return True


def get_suppression(session: Session, list_id: str) -> Suppression | None:
    for known, body in session.execute(statements.SUPPRESSIONS).fetchall():
        if known == list_id:
            keys = session.execute(statements.SUPPRESSED_ON, (list_id,))
            return msgspec.structs.replace(
                _suppression.decode(body), keys=tuple(key for (key,) in keys)
            )
    return None


def suppress(session: Session, list_id: str, add: Sequence[str], remove: Sequence[str]) -> bool:
    if session.execute(statements.HAS_SUPPRESSION, (list_id,)).fetchone() is None:
        return False
    _add(session, list_id, add)
    gone = [(key, list_id) for key in remove]
    session.connection.executemany(statements.UNSUPPRESS, gone)
    return True


def _add(session: Session, list_id: str, keys: Sequence[str]) -> None:
    session.connection.executemany(statements.SUPPRESS, [(key, list_id) for key in keys])


def _version(session: Session) -> int:
    row = session.execute(statements.VERSION).fetchone()
    return 0 if row is None else int(row[0])


def _next_version(session: Session) -> int:
    (version,) = session.execute(statements.NEXT_VERSION).fetchone()
    return int(version)


def _read(session: Session, version: int, default_zone: str) -> Rules:
    policies: dict[str, Policy] = {}
    born: dict[str, int] = {}
    for policy_id, mark, body in session.execute(statements.POLICIES):
        policies[policy_id] = _policy.decode(body)
        born[policy_id] = mark
    suppressions = {
        list_id: _suppression.decode(body)
        for list_id, body in session.execute(statements.SUPPRESSIONS)
    }
    return Rules(RuleBook(version, policies, suppressions), born, default_zone)
