"""Settings as text: values as a person would write them, secrets left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, BeforeValidator, SecretStr
from pydantic.fields import FieldInfo

from penstock.model.backoff import Backoff
from penstock.model.times import format_duration
from penstock.settings import Settings, millis
from penstock.settings.ports import PortRange
from penstock.settings.secrets import names_secret, redact
from penstock.settings_origin import Read

HIDDEN = "***"


def rows(settings: Settings, read: Read) -> list[tuple[str, object, str]]:
    """(dotted name, value, origin), in the order of the tree."""
    return [
        (".".join(path), value, (read.origin(path) if read.says(path) else None) or "default")
        for path, value in leaves(settings)
    ]


def leaves(part: BaseModel, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    for name, field in type(part).model_fields.items():
        yield from _leaf((*at, field.alias or name), getattr(part, name), field)
    for name, value in (part.model_extra or {}).items():
        yield (*at, name), plain(name, value)


def _leaf(
    path: tuple[str, ...], value: object, field: FieldInfo
) -> Iterator[tuple[tuple[str, ...], object]]:
    if isinstance(value, BaseModel):
        yield from leaves(value, path)
    elif isinstance(value, dict) and any(isinstance(item, BaseModel) for item in value.values()):
        for name, item in value.items():
            yield from leaves(item, (*path, name))
    elif isinstance(value, int) and is_duration(field):
        yield path, format_duration(value)
    else:
        yield path, plain(path[-1], value)


def plain(name: str, value: object) -> object:
    """The part of a value that may be shown."""
    if isinstance(value, SecretStr):
        return HIDDEN
    if isinstance(value, BaseModel):  # a token
        value = dict(value)
    if isinstance(value, dict):
        return {key: plain(str(key), item) for key, item in value.items()}
    if isinstance(value, PortRange):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain(name, item) for item in value]
    if isinstance(value, str) and value:
        return HIDDEN if names_secret(name) else redact(value)
    return str(value) if isinstance(value, Backoff | Path) else value


def is_duration(field: FieldInfo) -> bool:
    return any(isinstance(mark, BeforeValidator) and mark.func is millis for mark in field.metadata)
