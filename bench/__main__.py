"""`python -m bench` runs all, `python -m bench NAME …` some; `--list` names them.

`python -m bench peers [NAME …]` compares with other software, which takes longer;
`python -m bench recurring-peers` compares recurring rules with other schedulers, in 20 minutes;
`python -m bench moderate [--only NAME …]` says what a message costs at moderate rates;
`python -m bench ticks --original` calls the ticks system as its predecessor was called;
`python -m bench pending --large` has 10,000,000 messages pending on SQLite and PostgreSQL;
`python -m bench recurring --only PART --on STORE` measures one part, on one store;
`python -m bench profile` writes down what the hot paths spend their time on;
`python -m bench http --ordinary [--against FOLDER]` measures the API without its hot way, beside
the API of another checkout;
`python -m bench http --ways` sends it requests as clients in several languages do.
"""

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
    "processes",
    "clients",
    "ndjson",
    "lateness",
    "moderate",
    "pending",
    "redis",
    "postgres",
    "brokers",
    "ticks",
    "rooms",
    "grpc",
    "dashboard",
    "dynamodb",
    "policies",
    "cluster",
    "size",
    "recurring",
    "kill",
)
"""Every benchmark of `make bench`; each is bench/run_<name>.py with a main()."""

WITH_WORDS = {
    ("peers",): "peers",
    ("recurring-peers",): "recurring_peers",
    ("moderate",): "moderate",
    ("http", "--ordinary"): "ordinary",
    ("http", "--ways"): "ways",
}
"""Benchmarks that take words of their own, and the modules that they are in."""

WITH_OPTIONS = ("ticks", "pending", "recurring")
"""Benchmarks of `make bench` that run only a part of themselves with options: `NAME --help`."""


def main(names: list[str]) -> int:
    if names[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    if "--list" in names:
        print("\n".join((*ORDER, "peers", "recurring-peers", "profile")))
        return 0
    for first, module in WITH_WORDS.items():
        if names[: len(first)] == list(first):
            main_of = importlib.import_module(f"bench.run_{module}").main
            return int(main_of(*names[len(first) :]) or 0)
    if names[:1] and names[0] in WITH_OPTIONS and names[1:2] and names[1].startswith("-"):
        importlib.import_module(f"bench.run_{names[0]}").main(*names[1:])
        return 0
    unknown = [name for name in names if not (Path(__file__).parent / f"run_{name}.py").exists()]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are: {', '.join(ORDER)}", file=sys.stderr)
        return 2
    chosen = names or list(ORDER)
    begun = time.perf_counter()
    for number, name in enumerate(chosen, 1):
        console.rule(f"{number}/{len(chosen)} {name}")
        start = time.perf_counter()
        importlib.import_module(f"bench.run_{name}").main()
        now = time.perf_counter()
        console.print(f"[dim]{name} took {now - start:.0f} s, all so far {now - begun:.0f} s[/dim]")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
