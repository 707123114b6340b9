"""DEAD: dead letters grouped by what went wrong, with bounded work."""

from __future__ import annotations

import re

from penstock.model.query import Cursor, Filter
from penstock.model.state import State
from penstock.model.status_view import DeadGroup, DeadGroups
from penstock.model.times import format_moment
from penstock.ports.fleet import DeadLetter
from penstock.ports.store import MessageStore, Store

LIMIT = 20_000
"""Dead letters read where the store can list them without their payloads …"""
LISTED = 2_000
"""… and where they are read from a list."""
PAGE = 200
GROUPS = 100
"""Groups returned at most."""
FOLDED = "#"
"""Stands for a number or an id."""

_VARYING = re.compile(
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
    r"|\b(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}\b"
    r"|(?<!answered )(?<![0-9])[0-9]+"  # 404 and 410 are two different errors
)
_REPEATED = re.compile(rf"{FOLDED}(?:[.:,]?{FOLDED})+")


async def dead_groups(store: Store, route: str | None) -> DeadGroups:
    if store.dead is not None:
        letters = await store.dead.dead_letters(route, LIMIT + 1)
        truncated = len(letters) > LIMIT
    else:
        letters, truncated = await _listed(store.messages, route)
    groups = sorted(_grouped(letters[:LIMIT]), key=lambda g: (-g.count, g.route, g.error))
    return DeadGroups(items=groups[:GROUPS], truncated=truncated or len(groups) > GROUPS)


def folded(error: str, message_id: str) -> str:
    """The error with numbers and the message id replaced, so that equal causes are one group."""
    text = error.replace(message_id, FOLDED) if len(message_id) > 3 else error
    return _REPEATED.sub(FOLDED, _VARYING.sub(FOLDED, text))


def _grouped(letters: list[DeadLetter]) -> list[DeadGroup]:
    groups: dict[tuple[str, str], DeadGroup] = {}
    known: dict[str, str] = {}
    for letter in sorted(letters, key=lambda each: each.at):
        error = known.get(letter.error)
        if error is None:
            error = known[letter.error] = folded(letter.error, letter.id)
        group = groups.get((letter.route, error))
        when = format_moment(letter.at)
        if group is None:
            groups[letter.route, error] = DeadGroup(
                route=letter.route,
                error=error,
                match=max(error.split(FOLDED), key=len).strip() or None,
                count=1,
                oldest=when,
                newest=when,
                example_id=letter.id,
            )
        else:
            group.count += 1
            group.newest, group.example_id = when, letter.id
    return list(groups.values())


async def _listed(store: MessageStore, route: str | None) -> tuple[list[DeadLetter], bool]:
    where = Filter(state=State.DEAD, route=route)
    letters: list[DeadLetter] = []
    cursor: Cursor | None = None
    while len(letters) < LISTED:
        page = await store.search(where, cursor, PAGE)
        letters += [
            DeadLetter(m.route, m.last_error or "", m.settled or m.due, m.id) for m in page.items
        ]
        cursor = page.next
        if cursor is None:
            return letters, False
    return letters, True
