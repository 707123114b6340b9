"""The tables of the reference that come from the code: store URLs, policies, rooms, errors, alerts.

scripts/reference.py writes them between the marks of their pages.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

import penstock.model.errors
from penstock.api.statuses import status_of
from penstock.model.errors import PenstockError
from penstock.model.policy import AppliesTo, Cap, Pace, Quiet, Suppression
from penstock.model.room import RoomSettings
from penstock.model.times import format_duration
from penstock.redis_kit.address import Options as RedisOptions
from penstock.stores.dynamodb.address import Options as DynamoOptions
from penstock.stores.postgres.address import Address as PostgresAddress
from penstock.stores.sqlite.address import Address as SqliteAddress

ROOT = Path(__file__).parents[1]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
NOT_IN_A_URL = {"path", "conninfo", "name", "expire_outside"}
"""Fields that are found out, not written."""
CLIENT_ONLY = {"Unreachable", "ServerFault", "ConfigError", "SourceUnavailable"}
NEVER_SHOWN = {"PutRefused", "PartlyUnavailable", "NotStored"}
"""Errors that no caller of the API or the library sees as such."""
WORDS = {
    "kind": "`cap`, `quiet` or `pace`.",
    "applies_to": "Which messages: see below. Unset: all.",
    "on_exceed": "What becomes of a message that the policy does not let through now: `DEFER` it until"
    " it may go, or `BLOCK` it.",
    "scope": "What the cap counts by: `key`, `channel`, `campaign`, `tag`, `route`; several count each"
    " combination apart.",
    "limit": "So many in a window. A cap needs this with `window`, or `min_interval`.",
    "window": 'Rolling (`"24h"`, at most 400 days), or of the calendar: `{"calendar": "day"}`, also'
    ' `hour`, `week`, `month`, `year`, if you like with a `"zone"`.',
    "min_interval": "At least this between two.",
    "from": "Begin, by the recipient's wall clock: `22:00`.",
    "to": "End: `08:00`. Before `from`, it is on the next day.",
    "days": "Days on which the quiet hours begin.",
    "rate": "`50/s`, `3000/m`, `1/5s`: at most so many in the long run.",
    "bypass": "Classes of messages that are let through.",
    "bypass_counts": "What bypasses is counted all the same.",
    "schema": "The schema that holds Penstock's tables.",
    "keys": "The keys that get nothing.",
    "route": "Routes.",
    "channel": "Label `channel`.",
    "campaign": "Label `campaign`.",
    "class": "Label `class`.",
    "tag": "One of the label `tags`.",
    "admit_rate": "How fast people are let in: `200/s`, `30/m`. Unset: as slots come free.",
    "lanes": "Lane → weight, at most four. Of people waiting in several lanes each lane gets its share.",
}
"""Meanings of fields whose code says nothing, being plain from their type."""
DURATIONS = {"claim_ttl", "session_ttl", "wait_grace"}


def meanings(part: type[object]) -> dict[str, str]:
    """The text below each field, as the code has it."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
    if not isinstance(body, ast.ClassDef):
        raise TypeError(f"{part} is not a class")
    found: dict[str, str] = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ):
                found[name] = " ".join(text.split()).replace("|", "\\|")
    return found


def options(kind: type[Any]) -> str:
    """What may follow the `?` of a store's address."""
    return _table("option", _fields(kind))


def policy(kind: type[msgspec.Struct]) -> str:
    return _table("field", _fields(kind))


def rooms() -> str:
    return _table("setting", _fields(RoomSettings))


def errors() -> str:
    lines = ["| code | HTTP | gRPC | class | means |", "|---|--:|---|---|---|"]
    for kind in _kinds(PenstockError):
        name = kind.__name__
        meaning = (inspect.getdoc(kind) or "").partition("\n")[0]
        status = status_of(kind)
        http = "–" if name in CLIENT_ONLY else str(status.http)
        grpc = "–" if name in CLIENT_ONLY else f"`{status.grpc}`"
        lines.append(f"| `{kind.code}` | {http} | {grpc} | `{name}` | {meaning} |")
    return "\n".join(lines) + "\n"


def alerts() -> str:
    lines = ["| alert | severity | after | begin here |", "|---|---|---|---|"]
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            words = rule["annotations"]["description"]
            lines.append(
                f"| `{rule['alert']}` | {rule['labels']['severity']} | {rule.get('for', 'at once')}"
                f" | {words} |"
            )
    return "\n".join(lines) + "\n"


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "reference/store-urls.md": {
        "sqlite": lambda: options(SqliteAddress),
        "postgres": lambda: options(PostgresAddress),
        "redis": lambda: options(RedisOptions),
        "dynamodb": lambda: options(DynamoOptions),
    },
    "reference/policies.md": {
        "cap": lambda: policy(Cap),
        "quiet": lambda: policy(Quiet),
        "pace": lambda: policy(Pace),
        "suppression": lambda: policy(Suppression),
        "applies-to": lambda: policy(AppliesTo),
    },
    "reference/rooms.md": {"settings": rooms},
    "reference/errors.md": {"errors": errors},
    "run/alerts-and-slo.md": {"alerts": alerts},
}
"""Page below docs/ → mark → what stands between its marks."""


def _kinds(kind: type[PenstockError]) -> Iterator[type[PenstockError]]:
    for below in kind.__subclasses__():
        if below.__module__ == penstock.model.errors.__name__:
            if below.__name__ not in NEVER_SHOWN:
                yield below
            yield from _kinds(below)


def _fields(kind: type[Any]) -> Iterator[tuple[str, str, str]]:
    """Name, default, meaning; those of the classes it is made of first."""
    known = {name: text for base in reversed(kind.__mro__[:-1]) for name, text in _own(base)}
    for name, shown, default in _defaults(kind):
        if shown in NOT_IN_A_URL:
            continue
        words = WORDS.get(shown) or known.get(name)
        if words is None:
            raise LookupError(f"{kind.__name__}.{name} has no text below it")
        yield shown, _default(shown, default), words


def _own(kind: type[Any]) -> list[tuple[str, str]]:
    try:
        return list(meanings(kind).items())
    except (OSError, TypeError):
        return []  # a class of msgspec's own


def _defaults(kind: type[Any]) -> Iterator[tuple[str, str, Any]]:
    if is_dataclass(kind):
        for field in fields(kind):
            yield field.name, field.name, None if field.default is MISSING else field.default
        return
    for one in msgspec.structs.fields(kind):
        default = one.default
        if one.default_factory is not msgspec.NODEFAULT:
            default = one.default_factory()
        yield one.name, one.encode_name, default


def _default(name: str, value: Any) -> str:
    if value is msgspec.NODEFAULT:
        return "required"
    if value is None or value in ((), ""):
        return "–"
    if name in DURATIONS:
        return f'`"{format_duration(value)}"`'
    if name == "days":
        return "every day"
    return f"`{json.dumps(value, default=str)}`"


def _table(first: str, rows: Iterator[tuple[str, str, str]]) -> str:
    lines = [f"| {first} | default | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {default} | {words} |" for name, default, words in rows]
    return "\n".join(lines) + "\n"
