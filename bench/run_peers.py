"""Penstock against its peers: `python -m bench peers [NAME …] [--quick | --smoke] [--minutes N]`.

A peer that fails is reported and the rest goes on; of one whose program or server this machine does
not have a line says so. Each peer's figures are kept when it is done, and those of peers that are
not run stay, so that one can be repeated alone (`peers rq`, or `peers --only rq`). `--quick` asks
for less of everything but the burst, `--smoke` only sees that all works; after `--minutes` no other
peer is begun, and after `--peer-minutes` no other part of one. At the end all enqueues are measured
once more: a machine that is slower for some minutes must not make one peer slower than another.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import tempfile
import time
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.peers import report, servers
from bench.peers.drive import Failed
from bench.peers.environments import VERSIONS, NotMade, environment
from bench.peers.table import PEERS, Peer, chosen
from bench.peers.workloads import PARTS, QUICK, SMOKE, Sizes, enqueue_again, measure
from bench.report import RESULTS, console, facts
from penstock.version import __version__

KEPT = RESULTS / "peers.json"
PEER_MINUTES = 5.0


def main(*words: str) -> int:
    asked = ArgumentParser(
        prog="python -m bench peers",
        description="Penstock against its peers, some 30 minutes for all of them.",
        epilog=f"Peers: {', '.join(peer.name for peer in PEERS)}.",
    )
    add = asked.add_argument
    add("names", nargs="*", metavar="NAME", help="these alone; the others keep their figures")
    add("--quick", action="store_true", help="less of everything but the burst: half the time")
    add("--smoke", action="store_true", help="only see that all works; nothing is kept")
    add("--only", action="append", default=[], metavar="NAME", help="the same as NAME")
    add("--part", choices=PARTS, help="one part alone; other figures stay")
    add("--minutes", type=float, default=24 * 60.0, help="begin no other peer after so many")
    add("--peer-minutes", type=float, default=PEER_MINUTES, help="nor another part of one")
    given = asked.parse_args(words)
    sizes = SMOKE if given.smoke else QUICK if given.quick else Sizes()
    sizes = replace(sizes, limit=given.peer_minutes * 60)
    try:
        wanted = chosen([*given.names, *given.only])
    except ValueError as exc:
        print(exc, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _end)
    found = {one["name"]: one for one in _kept()} if not given.smoke else {}
    begun = time.monotonic()
    for number, peer in enumerate(wanted, 1):
        if time.monotonic() - begun > given.minutes * 60:
            console.print(f"[bold]no time for {', '.join(p.name for p in wanted[number - 1 :])}[/]")
            break
        console.print(f"[bold]{number}/{len(wanted)} {peer.title}[/bold] ({peer.settings})")
        if (missing := servers.absent(peer.server)) is not None:
            console.print(f"  not at hand: {missing} is not on this machine")
            continue
        one = _run(peer, sizes, given.part)
        if given.part:
            one = report.with_part(found.get(peer.name, {}), one, given.part)
        found[peer.name] = one
        console.print(f"  [dim]{(time.monotonic() - begun) / 60:.1f} minutes so far[/dim]")
        if not given.smoke:
            _finish(found, sizes)
    if not given.smoke and given.part in (None, "enqueue"):
        _enqueue_again(wanted, found, sizes, begun + given.minutes * 60)
    results = _ordered(found)
    report.print_table(console, results)
    print("\n".join(report.lines(results)))
    return 0


def _end(*_: object) -> None:
    """Told to stop: what was started is stopped on the way out."""
    raise SystemExit(143)


def _run(peer: Peer, sizes: Sizes, part: str | None) -> dict[str, Any]:
    try:
        place = environment(peer.place)
    except NotMade as exc:
        return report.result(peer, {}, {"failed": {"environment": str(exc)}})
    with tempfile.TemporaryDirectory(prefix="penstock-peers-") as name:
        folder = Path(name) / peer.name
        figures = measure(peer, place, folder, sizes, _tell, part)
    made = {"penstock": __version__} if peer.is_ours else {}
    if peer.place in VERSIONS:
        made = place.versions()
    return report.result(peer, _told(peer, made), figures)


def _tell(part: str) -> None:
    console.print(f"  [dim]{part}[/dim]")


def _enqueue_again(
    wanted: list[Peer], found: dict[str, dict[str, Any]], sizes: Sizes, deadline: float
) -> None:
    """Of every peer that was measured; figures are the medians of both times together."""
    for peer in wanted:
        one = found.get(peer.name, {})
        if "samples" not in one or time.monotonic() > deadline:
            continue
        console.print(f"[bold]{peer.title}[/bold] [dim]enqueue again[/dim]")
        with tempfile.TemporaryDirectory(prefix="penstock-peers-") as name:
            try:
                more = enqueue_again(peer, environment(peer.place), Path(name) / "peer", sizes)
            except (Failed, OSError, RuntimeError) as exc:
                console.print(f"  [dim]failed: {exc}[/dim]")
                continue
        found[peer.name] = report.with_more(one, more)
        _finish(found, sizes)


def _told(peer: Peer, made: dict[str, str]) -> dict[str, str]:
    """Of all that was installed, what the figures depend on."""
    named = {re.split(r"[@=\[]", one)[0] for one in VERSIONS.get(peer.place, ())}
    named |= {"node", "go", "penstock"}
    return {name: number for name, number in made.items() if name in named}


def _finish(found: dict[str, dict[str, Any]], sizes: Sizes) -> None:
    """After every peer: an interrupted run keeps what it has."""
    about = (
        f"a burst of {sizes.burst:,} due in one instant; {sizes.rate}/s for {sizes.steady:.0f} s"
        f" due {sizes.near:.0f}-{sizes.far:.0f} s ahead; kill -9 among {sizes.kill:,},"
        f" lost: not back after {sizes.back_within:.0f} s;"
        " 100-byte bodies, server, enqueuer and workers on the same cores"
    )
    machine = facts() | {"servers": servers.versions()}
    report.keep(KEPT, about, machine, _ordered(found))


def _ordered(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [found[peer.name] for peer in PEERS if peer.name in found]


def _kept() -> list[dict[str, Any]]:
    peers: list[dict[str, Any]] = json.loads(KEPT.read_text())["peers"] if KEPT.exists() else []
    return peers
