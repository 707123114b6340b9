"""Compares the OpenAPI document with one that was saved, and prints every difference.

python scripts/openapi.py --save before.json      then, after a change:
python scripts/openapi.py before.json [after.json] [--words]

Without `after.json` it is the document of this tree, with tokens and every system of
`penstock.contrib` mounted. Calls, parameters, fields and statuses that are gone come first; changed
words are counted, and listed with `--words`. Exit code 1 if anything is gone that callers may use.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from penstock.api.http.openapi import build_document
from penstock.contrib import SYSTEMS, mounts
from penstock.settings import given

Json: TypeAlias = Mapping[str, Any]  # a part of an OpenAPI document

METHODS = frozenset({"get", "put", "post", "patch", "delete"})
WORDS = frozenset({"summary", "description"})
WAYS = {"gone": "Gone", "new": "New", "changed": "Changed", "words": "Other words"}


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two documents differ; `words`: only its text does."""

    way: Literal["gone", "new", "changed", "words"]
    what: str


def differences(before: Json, after: Json) -> Iterator[Difference]:
    """Every difference of two documents, by call and by schema."""
    yield from _named("call", _calls(before), _calls(after), _call)
    yield from _named("schema", _schemas(before), _schemas(after), _schema)
    known = {"paths", "components"}
    yield from _tree("document", _without(before, known), _without(after, known))


def _calls(document: Json) -> dict[str, Json]:
    return {
        f"{method.upper()} {path}": call
        for path, calls in document["paths"].items()
        for method, call in calls.items()
        if method in METHODS
    }


def _schemas(document: Json) -> dict[str, Json]:
    components: Json = document.get("components", {})
    found: dict[str, Json] = dict(components.get("schemas", {}))
    others = {kind: part for kind, part in components.items() if kind != "schemas"}
    return found | ({"(other components)": others} if others else {})


def _call(name: str, before: Json, after: Json) -> Iterator[Difference]:
    yield from _named(f"{name}: parameter", _parameters(before), _parameters(after), _tree)
    yield from _named(f"{name}: status", before["responses"], after["responses"], _tree)
    known = {"parameters", "responses"}
    yield from _tree(name, _without(before, known), _without(after, known))


def _without(part: Json, known: AbstractSet[str]) -> Json:
    return {key: one for key, one in part.items() if key not in known}


def _parameters(call: Json) -> dict[str, Json]:
    return {f"{one['name']} ({one['in']})": one for one in call.get("parameters", ())}


def _schema(name: str, before: Json, after: Json) -> Iterator[Difference]:
    fields = [one.get("properties", {}) for one in (before, after)]
    yield from _named(f"{name}: field", fields[0], fields[1], _tree)
    yield from _tree(name, _without(before, {"properties"}), _without(after, {"properties"}))


def _named(kind: str, before: Json, after: Json, compare: Any) -> Iterator[Difference]:
    """The differences of things that have names: gone, new, or the same with differences."""
    for name in sorted({*before, *after}):
        label = f"{kind} {name}"
        if name not in after:
            yield Difference("gone", label)
        elif name not in before:
            yield Difference("new", label)
        else:
            yield from compare(label, before[name], after[name])


def _tree(where: str, before: object, after: object) -> Iterator[Difference]:
    """The differences of two values of JSON; descriptions apart from the rest."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            if key in WORDS and before.get(key) != after.get(key):
                text = f"{where}: {before.get(key, '')!r} → {after.get(key, '')!r}"
                yield Difference("words", text)
            else:
                yield from _tree(f"{where}/{key}", before.get(key), after.get(key))
    else:
        yield Difference("changed", f"{where}: {json.dumps(before)} → {json.dumps(after)}")


def report(found: list[Difference], *, words: bool) -> str:
    """The differences for people: what is gone, new, changed, then how many texts."""
    if not found:
        return "no difference"
    parts: list[str] = []
    for way, title in WAYS.items():
        those = [one.what for one in found if one.way == way]
        listed = those if way != "words" or words else []
        parts.append("\n  ".join([f"{title}: {len(those)}", *listed]))
    return "\n".join(parts)


def main(*arguments: str) -> int:
    words = "--words" in arguments
    document = build_document(["default"], tokens=True, mounts=mounts(given(contrib=[*SYSTEMS])))
    match [one for one in arguments if one != "--words"]:
        case ["--save", target]:
            Path(target).write_bytes(document)
            return 0
        case [before, *others] if len(others) < 2 and not before.startswith("-"):
            after = Path(others[0]).read_bytes() if others else document
            found = list(differences(json.loads(Path(before).read_bytes()), json.loads(after)))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    print(report(found, words=words))
    return 1 if any(one.way == "gone" for one in found) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
