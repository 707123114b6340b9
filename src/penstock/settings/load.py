"""Read the settings once, from every place they may be in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError as PydanticError

from penstock.model.errors import ConfigError
from penstock.settings.problems import (
    explain,
    policy_problems,
    route_problems,
    source_problems,
    suppression_problems,
)
from penstock.settings.tree import Settings
from penstock.settings_origin import Read, read_layers

DEFAULT_FILE = Path("penstock.toml")
"""Read when it is there and no other file is named."""


def load(config: Path | None = None, overrides: Mapping[str, object] | None = None) -> Settings:
    """Read everything once; ConfigError says what is wrong, where, and what would be right.

    `overrides` are arguments by dotted name ({"api.http": …}); None means not given.
    """
    return load_with_origins(config, overrides)[0]


def load_with_origins(
    config: Path | None = None, overrides: Mapping[str, object] | None = None
) -> tuple[Settings, Read]:
    """The settings, and what was read and from where."""
    read = _read(config, overrides or {})
    return _build(read), read


def examine(config: Path | None = None) -> tuple[Settings, list[str]]:
    """Everything that is wrong, and the settings without the sections and routes that are."""
    return _examined(_read(config, {}))


def given(**values: Any) -> Settings:
    """Settings from these values alone: a library must not read files nobody named."""
    return _build(Read(values))


def _read(config: Path | None, overrides: Mapping[str, object]) -> Read:
    if config is None and DEFAULT_FILE.exists():
        config = DEFAULT_FILE
    return read_layers(config, frozenset(Settings.model_fields), overrides)


def _build(read: Read) -> Settings:
    settings, problems = _examined(read)
    if problems:
        raise ConfigError.of(problems)
    return settings


def _examined(read: Read) -> tuple[Settings, list[str]]:
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
    for name, written in settings.policies.items():
        problems += policy_problems(name, written)
    for name, written in settings.suppressions.items():
        problems += suppression_problems(name, written)
    return settings, problems
