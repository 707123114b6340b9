"""A crontab's lines as recurring rules."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from penstock.model.cron import cron
from penstock.model.errors import InvalidMessage
from penstock.model.zone import DEFAULT_ZONE, is_zone

_SETTING = re.compile(r'([A-Za-z_]\w*)\s*=\s*"?([^"]*?)"?')
_ZONES = frozenset({"CRON_TZ", "TZ"})
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
MAX_ID = 60


class CrontabRule(msgspec.Struct, frozen=True):
    """One crontab line that can become a rule."""

    line: int
    id: str
    fields: dict[str, Any]
    """The JSON fields of the rule; its payload is the command."""


class CrontabProblem(msgspec.Struct, frozen=True):
    """One crontab line that cannot become a rule, with the reason."""

    line: int
    reason: str


def read_crontab(
    text: str, *, route: str, system: bool = False, zone: str = DEFAULT_ZONE
) -> tuple[list[CrontabRule], list[CrontabProblem]]:
    """Parse every line of a crontab; `system` for one of /etc, with a user before the command.

    The payload of an occurrence is `{"command": …}`, with `user` and `environment` where the
    crontab has them. A zone that is set (`CRON_TZ`, `TZ`) holds for the lines below it.
    """
    rules: list[CrontabRule] = []
    problems: list[CrontabProblem] = []
    environment: dict[str, str] = {}
    taken: set[str] = set()
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        setting = _SETTING.fullmatch(line)
        try:
            if setting is None:
                rules.append(_rule(number, line, route, zone, environment, taken, system=system))
            elif setting[1] not in _ZONES:
                environment[setting[1]] = setting[2]
            elif is_zone(setting[2]):
                zone = setting[2]
            else:
                problems.append(CrontabProblem(number, f"{setting[2]!r} is not a time zone"))
        except InvalidMessage as exc:
            problems.append(CrontabProblem(number, exc.reason))
    return rules, problems


def _rule(
    number: int,
    line: str,
    route: str,
    zone: str,
    environment: dict[str, str],
    taken: set[str],
    *,
    system: bool,
) -> CrontabRule:
    words = 1 if line.startswith("@") else 5
    parts = line.split(None, words + system)
    if len(parts) <= words + system:
        raise InvalidMessage("command", "there is no command")
    when = " ".join(parts[:words])
    cron(when, zone).check_it_comes()
    command, _, stdin = parts[-1].replace("\\%", "\0").partition("%")
    payload: dict[str, Any] = {"command": command.replace("\0", "%").strip()}
    if stdin:
        payload["stdin"] = stdin.replace("%", "\n").replace("\0", "%")
    if system:
        payload["user"] = parts[words]
    if environment:
        payload["environment"] = dict(environment)
    fields = {"cron": when, "zone": zone, "route": route, "payload": payload}
    return CrontabRule(number, _name(payload["command"], number, taken), fields)


def _name(command: str, number: int, taken: set[str]) -> str:
    """A rule name from the program's name, with the line number if two are the same."""
    program = command.split(maxsplit=1)[0].rpartition("/")[2] if command.split() else "job"
    name = _NOT_A_NAME.sub("-", program).strip("-.")[:MAX_ID] or "job"
    if name in taken:
        name = f"{name}-{number}"
    taken.add(name)
    return name
