"""What every peer is asked to do, and the figures that come of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.peers import records
from bench.peers.drive import Failed, Running, running
from bench.peers.environments import Environment
from bench.peers.table import Peer

HOUR = 3600.0
HASTE = 1.6
"""A burst is due after so many times what its enqueue should take, and two seconds."""
PARTS = ("enqueue", "burst", "steady", "kill")
Figures = dict[str, object]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    bulk: int = 10_000
    single: int = 2_000
    enough: float = 1.0
    """Seconds one measurement of an enqueue takes, about."""
    times: int = 3
    """Measurements of an enqueue in a row; the median of all is what is told."""
    most: int = 200_000
    burst: int = 10_000
    rate: int = 200
    steady: float = 20.0
    near: float = 2.0
    far: float = 10.0
    kill: int = 4_000
    lease: int = 10
    """Seconds, for peers that let one choose when a dead worker's messages come back."""
    patience: float = 45.0
    """Seconds to wait for the next message, or for the last after a kill."""
    limit: float = 300.0
    """Seconds after which no other part of a peer is begun; what is slow is still waited for."""

    @property
    def back_within(self) -> float:
        """Seconds after a kill: what has not come by then is lost, as far as one can see."""
        return max(self.patience * 0.8, 3.0 * self.lease)


QUICK = Sizes(bulk=5_000, single=1_000, enough=0.7, steady=5.0, kill=3_000, lease=5, patience=30)
SMOKE = Sizes(
    500, 100, enough=0.0, times=1, burst=500, steady=2.0, far=4.0, kill=300, lease=5, patience=30
)
"""Only to see that everything works: its figures mean nothing."""


def measure(
    peer: Peer,
    place: Environment,
    folder: Path,
    sizes: Sizes,
    progress: Progress,
    only: str | None = None,
) -> Figures:
    """All figures of a peer, or of one part; what failed is named under "failed"."""
    found: Figures = {}
    failed: dict[str, str] = {}
    parts: tuple[tuple[str, int, Callable[[Running, Sizes, Figures, Peer], None]], ...] = (
        ("enqueue", 0, _enqueue),
        ("burst", 0, _burst),
        ("steady", 0, _steady),
        ("kill", sizes.lease, _kill),
    )
    begun = time.monotonic()
    for name, lease, part in parts:
        if only not in (None, name):
            continue
        took = time.monotonic() - begun
        if took > sizes.limit:
            failed[name] = f"not begun: what was before it took {took:.0f} s"
            progress(f"{name} {failed[name]}")
            continue
        progress(name)
        try:
            with running(peer, place, folder / name, lease) as run:
                part(run, sizes, found, peer)
        except (Failed, AssertionError, OSError, RuntimeError) as exc:
            failed[name] = str(exc)[-300:] or type(exc).__name__
            progress(f"{name} failed: {failed[name]}")
    return found | ({"failed": failed} if failed else {})


def enqueue_again(peer: Peer, place: Environment, folder: Path, sizes: Sizes) -> Figures:
    """What `measure` has measured first, once more: a machine is not always equally fast."""
    found: Figures = {}
    with running(peer, place, folder / "again", 0) as run:
        _enqueue(run, sizes, found, peer)
    return found


def _enqueue(run: Running, sizes: Sizes, found: Figures, peer: Peer) -> None:
    """An hour ahead, with nobody working: in bulk, one by one, and by many callers."""
    if peer.config:  # its server is one of its workers
        run.start_workers()
    run.enqueue("single", 20, HOUR)  # connections are made
    before = run.server.used()
    pending, used, growth = 0, 0, []
    samples: dict[str, list[int]] = {}
    for do, number in (("single", 1), ("at_once", 2), ("bulk", 0)):
        if do not in peer.lacks:
            samples[do], more = _rates(run, do, number * sizes.single or sizes.bulk, sizes)
            time.sleep(0.5)  # what is still being written
            pending, used = pending + more, run.server.used() - before
            growth.append((pending, used))
    found["growth"] = growth
    found["bytes"] = round(used / pending)
    found["samples"] = samples
    found |= {do: round(median(rates)) for do, rates in samples.items()}


def _rates(run: Running, do: str, number: int, sizes: Sizes) -> tuple[list[int], int]:
    """Messages a second, each time it was measured, and how many were put for it."""
    took = run.enqueue(do, number, HOUR)[2]
    each = max(1, min(sizes.most, int(number * sizes.enough / took))) if sizes.enough else number
    long_enough = took >= sizes.enough * 0.7
    rates = [round(number / took)] if long_enough else []
    put = number
    while len(rates) < sizes.times:
        rates.append(round(each / run.enqueue(do, each, HOUR)[2]))
        put += each
    return rates, put


def _warm(run: Running, sizes: Sizes) -> None:
    """Until messages go through: imports and connections are not what is measured."""
    run.start_workers()
    run.enqueue("bulk", 200, 1.0)
    records.wait_while_any(run.out, 200, sizes.patience, sizes.limit)
    if records.count(run.out) < 200:
        raise Failed(f"{records.count(run.out)} of the first 200 messages came: {_said(run)}")


def _burst(run: Running, sizes: Sizes, found: Figures, _: Peer) -> None:
    """All due in one instant, as soon as can be: an enqueue beside the worker is slower."""
    _warm(run, sizes)
    base = records.count(run.out)
    some = sizes.burst // 10
    lead = 2.0 + HASTE * 10 * run.enqueue("bulk", some, 2.0)[2]
    records.wait_for(run.out, base + some, sizes.patience)
    base = records.count(run.out)
    memory = run.memory()
    first, due, took = run.enqueue("bulk", sizes.burst, lead)
    if took > lead:
        raise Failed(f"{sizes.burst:,} messages took {took:.0f} s to enqueue: too slow for a burst")
    time.sleep(max(0.0, min(1.0, due / 1000 - time.time() - 0.5)))
    found["worker_bytes"] = round((run.memory() - memory) / sizes.burst)
    time.sleep(max(0.0, due / 1000 - time.time()))
    records.wait_while_any(run.out, base + sizes.burst, sizes.patience / 3, sizes.limit)
    came = records.read(run.out, first, sizes.burst)
    missing = records.repeats(came, sizes.burst)[0]
    if not came:
        raise Failed(f"nothing of the burst came: {_said(run)}")
    found["burst"] = {
        "drained": round(records.drained(came)),
        "missing": missing,
        **records.lateness(came),
    }


def _steady(run: Running, sizes: Sizes, found: Figures, _: Peer) -> None:
    """On a server of its own: what a burst may have left behind is not what is measured."""
    _warm(run, sizes)
    base = records.count(run.out)
    number = round(sizes.rate * sizes.steady)
    first, _due, took = run.enqueue(
        "steady", number, sizes.near, rate=sizes.rate, near=sizes.near, far=sizes.far
    )
    records.wait_for(run.out, base + number, sizes.far + sizes.patience, 0.2)
    came = records.read(run.out, first, number)
    if not came:
        raise Failed(f"nothing of the steady rate came: {_said(run)}")
    found["steady"] = {
        "rate": round(number / took),
        "missing": records.repeats(came, number)[0],
        **records.lateness(came),
    }


def _kill(run: Running, sizes: Sizes, found: Figures, _: Peer) -> None:
    """kill -9 of a worker when half is done, then a new one in its place."""
    _warm(run, sizes)
    base = records.count(run.out)
    first, due = run.enqueue("bulk", sizes.kill, 3.0)[:2]
    wait = max(0.0, due / 1000 - time.time()) + sizes.patience
    if not records.wait_for(run.out, base + sizes.kill // 2, wait, 0.002):
        raise Failed(f"half of {sizes.kill:,} did not come: {_said(run)}")
    run.victim.kill()
    killed = records.count(run.out) - base
    run.revive()
    deadline = time.monotonic() + sizes.back_within
    lost, twice = sizes.kill, 0
    while lost and time.monotonic() < deadline:
        time.sleep(0.5)
        lost, twice = records.repeats(records.read(run.out, first, sizes.kill), sizes.kill)
    time.sleep(2)  # a repeat may still come
    lost, twice = records.repeats(records.read(run.out, first, sizes.kill), sizes.kill)
    found["kill"] = {"number": sizes.kill, "after": killed, "lost": lost, "twice": twice}


def _said(run: Running) -> str:
    return run.victim.last_words()
