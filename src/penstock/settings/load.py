"""Read the settings once, from every place they may be in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin

from pydantic import ValidationError as PydanticError

from penstock.model.errors import ConfigError
from penstock.settings.problems import (
    explain,
    route_problems,
    rule_warnings,
    source_problems,
)
from penstock.settings.rules import recurring_problems, rule_problems
from penstock.settings.tree import Settings, section
from penstock.settings_origin import Read, read_layers

DEFAULT_FILES = (Path("penstock.toml"), Path("/etc/penstock/penstock.toml"))
"""The first of these files that exists is read when none is named."""


def load(config: Path | None = None, overrides: Mapping[str, object] | None = None) -> Settings:
    """Read all settings once; ConfigError names each error, its place and the remedy.

    `overrides` are arguments by dotted name ({"api.http": …}); None means not given.
    """
    return examine(config, overrides).sound()


def load_with_origins(
    config: Path | None = None, overrides: Mapping[str, object] | None = None
) -> tuple[Settings, Read]:
    """The settings, and the values read with their origins."""
    read = _read(config, overrides or {})
    return _examined(read).sound(), read


@dataclass(frozen=True, slots=True)
class Examined:
    """Settings that may be wrong, and their problems."""

    settings: Settings
    """The settings without the wrong sections and routes."""
    problems: list[str]
    warnings: list[str]
    """Possible mistakes, with which a server would start all the same."""
    file: Path | None
    """The TOML file; None: there was none."""

    def sound(self) -> Settings:
        """The settings; ConfigError lists everything that is wrong with them."""
        if self.problems:
            raise ConfigError.of(self.problems)
        return self.settings


def examine(config: Path | None = None, overrides: Mapping[str, object] | None = None) -> Examined:
    """Every error, and every possible mistake."""
    return _examined(_read(config, overrides or {}))


def given(**values: Any) -> Settings:
    """Settings from these values alone: a library must not read files its caller did not name."""
    return _examined(Read(values)).sound()


def _read(config: Path | None, overrides: Mapping[str, object]) -> Read:
    if config is None:
        config = next((file for file in DEFAULT_FILES if file.exists()), None)
    return read_layers(config, _known_names(), overrides)


def _known_names() -> dict[str, frozenset[str] | None]:
    known: dict[str, frozenset[str] | None] = {}
    for name, setting in Settings.model_fields.items():
        below = section((name,))
        has_names_of_its_own = below is None and get_origin(setting.annotation) is dict
        fields = () if below is None else below.model_fields
        known[name] = None if has_names_of_its_own else frozenset(fields)
    return known


def _examined(read: Read) -> Examined:
    problems = list(read.problems)
    wrong: list[tuple[str, ...]] = [(section,) for section in read.unread]
    try:
        settings = Settings(**read.without(wrong))
    except PydanticError as exc:
        problems += explain(exc, read)
        wrong += [tuple(map(str, error["loc"])) for error in exc.errors()]
        settings = Settings(**read.without(wrong))
    routes = frozenset(settings.all_routes()) | read.names("routes")
    for name, route in settings.routes.items():
        problems += route_problems(name, route, read)
    for name, source in settings.sources.items():
        problems += source_problems(name, source, routes, read)
    problems += rule_problems(settings.policies, settings.suppressions)
    problems += recurring_problems(settings.recurring, routes, settings.limits.max_payload)
    warnings = [*read.warnings, *rule_warnings(settings, read)]
    return Examined(settings, problems, warnings, read.file)
