"""Reads settings from a TOML file, .env and the environment; merges them and keeps their origins.

Beside the package penstock.settings and not in it, so that a client's command, which reads a single
value, need not load pydantic.
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

from penstock.model.errors import ConfigError

PREFIX = "PENSTOCK_"
DOTENV = Path(".env")
CLIENT_NAMES = frozenset({"ca", "config", "token", "url"})
"""PENSTOCK_CONFIG, PENSTOCK_URL … speak to the command line, not the server."""
_KUBERNETES = re.compile(r"(service_|port$|port_)")
"""Variables that Kubernetes sets by itself for a service called penstock."""
_IPV6 = re.compile(r"\[[0-9a-fA-F:.]+(%\w+)?\]:\d+")
"""A host and port that start like a list."""
_NAMED = frozenset({"routes", "sources", "policies", "recurring"})
"""Sections whose parts are independent of each other."""

_NEAR = 0.7
"""Similarity (0 to 1) of two names from which one is taken for a typo of the other."""

Tree: TypeAlias = dict[str, Any]
Known: TypeAlias = Mapping[str, frozenset[str] | None]
"""Every name at the top, with the names below it; None: any."""


@dataclass(slots=True)
class Read:
    """Values merged from all layers, and the layer each came from."""

    values: Tree
    origins: dict[tuple[str, ...], str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """Names that cannot be settings; reported together with everything else that is wrong."""
    warnings: list[str] = field(default_factory=list)
    """Possible mistakes of settings that work."""
    unread: set[str] = field(default_factory=set)
    """Sections a variable speaks of in JSON that is none."""
    file: Path | None = None
    """The TOML file that was read; None: there was none."""

    def origin(self, path: tuple[str, ...]) -> str | None:
        """The layer that set `path`, or that set something at or below it."""
        for size in range(len(path), 0, -1):
            if (found := self.origins.get(path[:size])) is not None:
                return found
        below = (at for at in self.origins if at[: len(path)] == path)
        return self.origins.get(next(below, ()))

    def says(self, path: tuple[str, ...]) -> bool:
        """True if some layer has a value for `path`, and not only an empty table above it."""
        here: object = self.values
        for part in path:
            if not isinstance(here, dict):
                return True
            if part not in here:
                return False
            here = here[part]
        return True

    def lay(self, layer: Tree, origin: str) -> None:
        """Put a stronger layer over the values so far."""
        _merge(self.values, layer)
        for path in _leaves(layer):
            self.origins[path] = origin

    def names(self, section: str) -> frozenset[str]:
        """The names in a section, valid or not."""
        named = self.values.get(section)
        return frozenset(named if isinstance(named, dict) else ())

    def without(self, wrong: list[tuple[str, ...]]) -> Tree:
        """The values without these sections; of named parts, only without those parts."""
        sound = dict(self.values)
        for top, *below in wrong:
            if below and top in _NAMED and isinstance(sound.get(top), dict):
                sound[top] = {name: at for name, at in sound[top].items() if name != below[0]}
            else:
                sound.pop(top, None)
        return sound


def read_layers(config: Path | None, known: Known, overrides: Mapping[str, object]) -> Read:
    """Weakest first: TOML, .env, environment, arguments."""
    read = Read({}, file=config)
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
    if not DOTENV.is_file():
        return {}
    from dotenv import dotenv_values  # noqa: PLC0415 - of the extra `server`: a library reads no .env

    try:
        return dotenv_values(DOTENV, encoding="utf-8")
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


def _take_variable(read: Read, name: str, text: str | None, where: str, known: Known) -> None:
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
        meant = _meant(top, known)
        if meant is None:
            read.warnings.append(f"{name}: no such setting; it is ignored ({where})")
        else:
            hint = f"did you mean {PREFIX}{meant.upper()}?"
            read.problems.append(f"{name}: no such setting; {hint} ({where})")


def _meant(top: str, known: Known) -> str | None:
    """The setting that a name is a near miss of: misspelled, or with one underscore for two."""
    for section, names in known.items():
        below = top.removeprefix(f"{section}_")
        if below != top:
            if names is None:
                return f"{section}__{below}"
            if close := get_close_matches(below, names, n=1, cutoff=_NEAR):
                return f"{section}__{close[0]}"
    close = get_close_matches(top, [*known, *CLIENT_NAMES], n=1, cutoff=_NEAR)
    return close[0] if close else None


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
