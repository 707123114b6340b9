"""Problems of settings, each with its remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from pydantic import ValidationError as PydanticError

from penstock.model.route import is_route_name
from penstock.settings.tree import RouteSettings, Settings, SourceSettings, section
from penstock.settings_origin import Read

DECISION_FORMATS = ("decision-batch", "decision-items")


def route_problems(name: str, route: RouteSettings, read: Read) -> list[str]:
    """Problems of a route; a sink checks its own options, unless one looks like a typo of ours."""
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
    if source.routes and source.format not in DECISION_FORMATS:
        reason = f"only with format {' or '.join(DECISION_FORMATS)}: others have no methods"
        problems.append(_problem(("sources", name, "routes"), reason, read))
    named: dict[tuple[str, ...], str] = {("route",): source.route}
    named |= {("routes", method): route for method, route in source.routes.items()}
    known = _listed(routes)
    problems += [
        _problem(("sources", name, *setting), f"no route {route!r}; known: {known}", read)
        for setting, route in named.items()
        if route not in routes
    ]
    return problems


def rule_warnings(settings: Settings, read: Read) -> list[str]:
    """Policies and suppression lists for routes that are not configured: they match no message."""
    routes = frozenset(settings.all_routes()) | read.names("routes")
    warnings = []
    for kind, rules in (("policies", settings.policies), ("suppressions", settings.suppressions)):
        for name, rule in rules.items():
            applies_to = rule.get("applies_to")
            named = applies_to.get("route", ()) if isinstance(applies_to, Mapping) else ()
            unknown = [route for route in named if route not in routes]
            if unknown and not isinstance(named, str):
                path = (kind, name, "applies_to", "route")
                reason = f"no route {', '.join(map(repr, unknown))}; known: {_listed(routes)}"
                warnings.append(_problem(path, reason, read))
    return warnings


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


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


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
