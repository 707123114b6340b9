"""A failing run made smaller while it breaks the same promise, and told so that one can read it."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from tests.simulation.plan import Event, Plan
from tests.simulation.run import Outcome, simulate

SHRINK_RUNS = 80
TOLD = 5
"""Failures of one run that are told."""

T = TypeVar("T")


def shrink(outcome: Outcome, most: int = SHRINK_RUNS) -> Outcome:
    """Fewer processes, fewer faults, fewer requests, as long as the same promise is broken."""
    promise = outcome.failures[0].promise
    runs = 0
    smaller = True
    while smaller and runs < most:
        smaller = False
        for plan in _smaller(outcome.plan):
            runs += 1
            tried = simulate(plan)
            if any(failure.promise == promise for failure in tried.failures):
                outcome, smaller = tried, True
                break
            if runs >= most:
                break
    return outcome


def _smaller(plan: Plan) -> Iterator[Plan]:
    """The largest steps first."""
    if plan.stays is not None:
        yield replace(plan, stays=None)
    kept_up = "" if plan.stays is None else plan.stays.target
    for process in (one for one in plan.processes[1:] if one.name != kept_up):
        kept = tuple(one for one in plan.processes if one is not process)
        events = tuple(event for event in plan.events if event.target != process.name)
        yield replace(plan, processes=kept, events=events)
    for events in _parts(plan.events):
        yield replace(plan, events=events)
    for asked in _parts(plan.asked, least=max(1, len(plan.asked) // 8)):
        yield replace(plan, asked=asked)


def _parts(items: tuple[T, ...], least: int = 1) -> Iterator[tuple[T, ...]]:
    """Without a half, a quarter …, at last without `least` of them."""
    size = len(items) // 2
    while size >= least:
        for start in range(0, len(items), size):
            yield items[:start] + items[start + size :]
        size //= 2
    if len(items) == 1:
        yield ()


def replay_command(seed: int, mutant: str | None = None) -> str:
    """What to type in the project's folder."""
    command = f"{os.path.relpath(sys.executable)} -m tests.simulation {seed}"
    return command if mutant is None else f"{command} --mutant {shlex.quote(mutant)}"


def report(outcome: Outcome, mutant: str | None = None) -> str:
    """What failed, what happened to it, and how to see it again."""
    plan, failures = outcome.plan, outcome.failures
    lines = [str(plan), *(f"  {event}" for event in map(_told, plan.events))]
    if plan.stays is not None:
        lines.append(f"  {_told(plan.stays)} for ever")
    lines += [f"  BROKEN {failure}" for failure in failures[:TOLD]]
    if len(failures) > TOLD:
        lines.append(f"  … and {len(failures) - TOLD} more")
    lines += _folded(outcome.story)
    return "\n".join([*lines, f"replay: {replay_command(plan.seed, mutant)}"])


def _told(event: Event) -> str:
    facts = [f"{event.at / 1000:6.3f} s  {event.kind}", event.target, event.detail]
    if event.value:
        facts.append(str(event.value))
    if event.span:
        facts.append(f"for {event.span} ms")
    return " ".join(filter(None, facts))


def _folded(story: Sequence[str]) -> list[str]:
    """The same fault again and again is one line."""
    lines: list[str] = []
    times = 1
    for line, following in zip(story, [*story[1:], ""], strict=True):
        if "FAULT" in line and line.split()[2:] == following.split()[2:]:
            times += 1
            continue
        lines.append(line.rstrip() + (f" (the last of {times})" if times > 1 else ""))
        times = 1
    return lines
