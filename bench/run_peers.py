"""Penstock against its peers: `python -m bench peers [NAME …] [--quick] [--smoke]`.

A peer that fails is reported and the rest goes on. What was kept of peers that are not run again
stays, so that one can be repeated alone.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.peers import report, servers
from bench.peers.environments import NotMade, environment
from bench.peers.table import PEERS, Peer, chosen
from bench.peers.workloads import QUICK, SMOKE, Sizes, measure
from bench.report import RESULTS, console, facts

KEPT = RESULTS / "peers.json"


def main(*words: str) -> int:
    sizes = QUICK if "--quick" in words else SMOKE if "--smoke" in words else Sizes()
    try:
        wanted = chosen([word for word in words if not word.startswith("-")])
    except ValueError as exc:
        print(exc, file=sys.stderr)
        return 2
    found = {one["name"]: one for one in _kept()} if sizes is not SMOKE else {}
    begun = time.monotonic()
    for number, peer in enumerate(wanted, 1):
        console.print(f"[bold]{number}/{len(wanted)} {peer.title}[/bold] ({peer.settings})")
        found[peer.name] = _run(peer, sizes)
        console.print(f"  [dim]{(time.monotonic() - begun) / 60:.1f} minutes so far[/dim]")
        _finish(found, sizes)
    results = _ordered(found)
    report.print_table(console, results)
    print("\n".join(report.lines(results)))
    return 0


def _run(peer: Peer, sizes: Sizes) -> dict[str, Any]:
    try:
        place = environment(peer.place)
    except NotMade as exc:
        return report.result(peer, {}, {"failed": {"environment": str(exc)}})
    with tempfile.TemporaryDirectory(prefix="penstock-peers-") as name:
        folder = Path(name) / peer.name
        figures = measure(
            peer, place, folder, sizes, lambda part: console.print(f"  [dim]{part}[/dim]")
        )
    made = {} if peer.place in {"penstock", "beanstalkd"} else place.versions()
    return report.result(peer, made, figures)


def _finish(found: dict[str, dict[str, Any]], sizes: Sizes) -> None:
    """After every peer: an interrupted run keeps what it has. Of a smoke run nothing is kept."""
    if sizes is SMOKE:
        return
    about = (
        f"a burst of {sizes.burst:,} due in one instant; {sizes.rate}/s for {sizes.steady:.0f} s"
        f" due {sizes.near:.0f}-{sizes.far:.0f} s ahead; kill -9 among {sizes.kill:,};"
        " 100-byte bodies, server, enqueuer and workers on the same cores"
    )
    machine = facts() | {"servers": servers.versions()}
    report.keep(KEPT, about, machine, _ordered(found))


def _ordered(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [found[peer.name] for peer in PEERS if peer.name in found]


def _kept() -> list[dict[str, Any]]:
    peers: list[dict[str, Any]] = json.loads(KEPT.read_text())["peers"] if KEPT.exists() else []
    return peers
