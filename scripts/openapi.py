"""Compares the OpenAPI document with one that was saved, and prints every difference.

python scripts/openapi.py --save before.json     then, after a change:
python scripts/openapi.py before.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from penstock.api.http.openapi import build_document
from penstock.contrib import SYSTEMS, mounts
from penstock.settings import given


def differences(before: object, after: object, where: str = "") -> Iterator[str]:
    """One line for each place where two documents differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            if name not in before:
                yield f"{where}/{name} is new: {json.dumps(after[name])}"
            elif name not in after:
                yield f"{where}/{name} is gone: {json.dumps(before[name])}"
            else:
                yield from differences(before[name], after[name], f"{where}/{name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, f"{where}[{place}]")
    elif before != after:
        yield f"{where}: {json.dumps(before)} → {json.dumps(after)}"


def main(*arguments: str) -> int:
    document = build_document(["default"], tokens=True, mounts=mounts(given(contrib=[*SYSTEMS])))
    match arguments:
        case ("--save", target):
            Path(target).write_bytes(document)
        case (saved,):
            found = list(differences(json.loads(Path(saved).read_bytes()), json.loads(document)))
            print("\n".join(found) or "no difference")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
