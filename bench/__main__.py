"""`python -m bench` runs all, `python -m bench NAME …` some; `--list` names them."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

from bench.report import console

ORDER = (
    "put",
    "release",
    "http",
    "ndjson",
    "lateness",
    "pending",
    "redis",
    "brokers",
    "ticks",
    "rooms",
    "grpc",
    "dashboard",
    "dynamodb",
    "policies",
)
"""Every benchmark of `make bench`; each is bench/run_<name>.py with a main()."""


def main(names: list[str]) -> int:
    if "--list" in names:
        print("\n".join(ORDER))
        return 0
    unknown = [name for name in names if not (Path(__file__).parent / f"run_{name}.py").exists()]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are: {', '.join(ORDER)}", file=sys.stderr)
        return 2
    chosen = names or list(ORDER)
    for number, name in enumerate(chosen, 1):
        console.rule(f"{number}/{len(chosen)} {name}")
        start = time.perf_counter()
        importlib.import_module(f"bench.run_{name}").main()
        console.print(f"[dim]{name} took {time.perf_counter() - start:.0f} s[/dim]")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
