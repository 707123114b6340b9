"""Where settings come from: a TOML file, .env, the environment; merged, with origins kept.

Beside the package penstock.settings and not in it, so that a client's command, which asks for a
single value, need not load pydantic.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias

from dotenv import dotenv_values

from penstock.model.errors import ConfigError

PREFIX = "PENSTOCK_"
DOTENV = Path(".env")
CLIENT_NAMES = frozenset({"ca", "config", "token", "url"})
"""PENSTOCK_CONFIG, PENSTOCK_URL … speak to the command line, not the server."""
_KUBERNETES = re.compile(r"(service_|port$|port_)")
"""What Kubernetes sets by itself beside a service called penstock."""
_IPV6 = re.compile(r"\[[0-9a-fA-F:.]+(%\w+)?\]:\d+")
"""A host and port that start like a list."""
_NAMED = frozenset({"routes", "sources", "policies"})
"""Sections of parts that stand for themselves."""

Tree: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Read:
    """Values merged from all layers, and the layer each came from."""

    values: Tree
    origins: dict[tuple[str, ...], str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """Names that cannot be settings; reported together with everything else that is wrong."""
    unread: set[str] = field(default_factory=set)
    """Sections a variable speaks of in JSON that is none."""

    def origin(self, path: tuple[str, ...]) -> str | None:
        """The layer that set `path`, or that set something at or below it."""
        for size in range(len(path), 0, -1):
            if (found := self.origins.get(path[:size])) is not None:
                return found
        below = (at for at in self.origins if at[: len(path)] == path)
        return self.origins.get(next(below, ()))

    def lay(self, layer: Tree, origin: str) -> None:
        """Put a stronger layer over what is there."""
        _merge(self.values, layer)
        for path in _leaves(layer):
            self.origins[path] = origin

    def names(self, section: str) -> frozenset[str]:
        """What is named in a section, right or wrong."""
        named = self.values.get(section)
        return frozenset(named if isinstance(named, dict) else ())

    def without(self, wrong: list[tuple[str, ...]]) -> Tree:
        """The values without the sections of these; of named parts, without those."""
        sound = dict(self.values)
        for top, *below in wrong:
            if below and top in _NAMED and isinstance(sound.get(top), dict):
                sound[top] = {name: at for name, at in sound[top].items() if name != below[0]}
            else:
                sound.pop(top, None)
        return sound


def read_layers(
    config: Path | None, known: frozenset[str], overrides: Mapping[str, object]
) -> Read:
    """Weakest first: TOML, .env, environment, arguments. `known` are the names at the top."""
    read = Read({})
    if config is not None:
        read.lay(_toml(config), str(config))
    for variables, where in ((dotenv(), str(DOTENV)), (os.environ, "environment")):
        for name, text in sorted(variables.items()):
            _take_variable(read, name, text, where, known)
    read.lay(_given(overrides), "command line")
    return read


def client_value(name: str) -> str | None:
    """PENSTOCK_URL and its like, from the environment or .env."""
    variable = PREFIX + name.upper()
    return os.environ.get(variable) or dotenv().get(variable) or None


def dotenv() -> Mapping[str, str | None]:
    """The variables of ./.env; none when there is no such file."""
    try:
        return dotenv_values(DOTENV, encoding="utf-8") if DOTENV.is_file() else {}
    except (OSError, ValueError) as exc:
        raise ConfigError(f"{DOTENV}: cannot be read: {exc}") from exc


def _toml(config: Path) -> Tree:
    try:
        return tomllib.loads(config.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as exc:
        raise ConfigError(f"config file {config} does not exist") from exc
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"{config} is not valid TOML: {exc}") from exc
    except (OSError, ValueError) as exc:
        raise ConfigError(f"config file {config} cannot be read: {exc}") from exc


def _take_variable(
    read: Read, name: str, text: str | None, where: str, known: frozenset[str]
) -> None:
    if not text or not name.upper().startswith(PREFIX):
        return  # empty means unset, and a .env has names of many programs
    path = name[len(PREFIX) :].lower().split("__")
    top = path[0]
    if top in known:
        try:
            value = _decoded(text)
        except ValueError as exc:
            read.problems.append(f"{name}: starts like JSON but is not ({exc}) ({where})")
            read.unread.add(top)
            return
        read.lay(_nested(_spelled_as_before(read.values, path), value), f"{where}: {name}")
    elif top not in CLIENT_NAMES and not _KUBERNETES.match(top):
        close = get_close_matches(top, known | CLIENT_NAMES, n=1)
        hint = f"; did you mean {PREFIX}{close[0].upper()}?" if close else ""
        read.problems.append(f"{name}: no such setting{hint} ({where})")


def _spelled_as_before(values: Tree, path: list[str]) -> list[str]:
    """Variables are in capitals: where a weaker layer spells a name otherwise, it is that one."""
    spelled: list[str] = []
    here: object = values
    for part in path:
        names = list(here) if isinstance(here, dict) else []
        match = next((name for name in names if name.lower() == part), part)
        spelled.append(match)
        here = here.get(match) if isinstance(here, dict) else None
    return spelled


def _decoded(text: str) -> object:
    """Lists and tables are written as JSON; everything else is the text itself.

    ValueError for JSON with a slip in it: taken for text, it could become a token.
    """
    if text.lstrip()[:1] in {"[", "{"} and not _IPV6.fullmatch(text):
        return json.loads(text)
    return text


def _nested(path: list[str], value: object) -> Tree:
    for part in reversed(path):
        value = {part: value}
    return value if isinstance(value, dict) else {}


def _given(overrides: Mapping[str, object]) -> Tree:
    tree: Tree = {}
    for name, value in overrides.items():
        if value is not None:
            _merge(tree, _nested(name.split("."), value))
    return tree


def _merge(under: Tree, over: Tree) -> None:
    for name, value in over.items():
        held = under.get(name)
        if isinstance(held, dict) and isinstance(value, dict):
            _merge(held, value)
        else:
            under[name] = value


def _leaves(tree: Tree, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    leaves: list[tuple[str, ...]] = []
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            leaves += _leaves(value, (*path, name))
        else:
            leaves.append((*path, name))
    return leaves
