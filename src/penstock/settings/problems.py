"""What is wrong with settings, told so that it can be put right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches

from pydantic import ValidationError as PydanticError

from penstock.model.errors import PenstockError
from penstock.model.policy import check_policy_id, policy_from, suppression_from
from penstock.model.route import is_route_name
from penstock.settings.tree import RouteSettings, SourceSettings, section
from penstock.settings_origin import Read


def policy_problems(name: str, written: Mapping[str, object]) -> list[str]:
    return _rule_problems("policies", name, policy_from, written)


def suppression_problems(name: str, written: Mapping[str, object]) -> list[str]:
    return _rule_problems("suppressions", name, suppression_from, written)


def _rule_problems(
    part: str, name: str, read: Callable[[object], object], written: Mapping[str, object]
) -> list[str]:
    try:
        check_policy_id(name)
        read(written)
    except PenstockError as exc:
        return [f"{part}.{name}.{exc.message}"]
    return []


def route_problems(name: str, route: RouteSettings, read: Read) -> list[str]:
    """What a sink calls its own is the sink's to judge, unless it only looks like a slip."""
    problems = []
    if route.ordered and route.max_in_flight_per_key not in (None, 1):
        problems.append(f"routes.{name}.max_in_flight_per_key: ordered means one at a time")
    if not is_route_name(name):
        problems.append(f"routes.{name}: a route's name is letters, digits, _ . and -")
    for extra in route.model_extra or {}:
        close = get_close_matches(extra.lower(), RouteSettings.model_fields, n=1, cutoff=0.75)
        if close:
            path = ("routes", name, extra)
            problems.append(_problem(path, f"no such setting{_did_you_mean(path)}", read))
    return problems


def source_problems(
    name: str, source: SourceSettings, routes: frozenset[str], read: Read
) -> list[str]:
    problems = []
    if not is_route_name(name):
        problems.append(f"sources.{name}: a source's name is letters, digits, _ . and -")
    if source.route not in routes:
        known = ", ".join(sorted(routes))
        path = ("sources", name, "route")
        problems.append(_problem(path, f"no route {source.route!r}; known: {known}", read))
    return problems


def explain(exc: PydanticError, read: Read) -> list[str]:
    lines = []
    for error in exc.errors(include_input=False, include_url=False):
        path = tuple(str(part) for part in error["loc"])
        reason = error["msg"].removeprefix("Value error, ")
        reason = reason[:1].lower() + reason[1:]
        if error["type"] == "extra_forbidden":
            reason = "no such setting" + _did_you_mean(path)
        lines.append(_problem(path, reason, read))
    return lines


def _problem(path: tuple[str, ...], reason: str, read: Read) -> str:
    origin = read.origin(path)
    return f"{'.'.join(path)}: {reason}{f' ({origin})' if origin else ''}"


def _did_you_mean(path: tuple[str, ...]) -> str:
    kind = section(path[:-1])
    known = list(kind.model_fields) if kind is not None else []
    close = get_close_matches(path[-1].lower(), known, n=1)
    if close:
        return f"; did you mean {'.'.join((*path[:-1], close[0]))}?"
    return f"; known here: {', '.join(known)}" if known else ""
