"""Errors about JSON input, in terms of the caller's fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from typing import TypeVar

import msgspec
from msgspec import inspect

from penstock.model.errors import InvalidMessage, Malformed, shortened

T = TypeVar("T")

WIRE_ERRORS = (
    msgspec.ValidationError,
    msgspec.DecodeError,
    RecursionError,
    UnicodeDecodeError,
)
"""The errors that msgspec raises for input; `wire_error` translates them."""

MAX_PATH = 200
"""Most characters of an error's path that are looked up."""
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}
_TYPES = re.compile(r"Expected `([a-z |]+)`, got `([a-z]+)`")
_FIELD = re.compile(r"Object (contains unknown|missing required) field `(.*)`", re.DOTALL)
_CHOICE = re.compile(r"Invalid (?:enum )?value (.*)", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(?:\d+|\.\.\.)\]")


def read_json(decoder: msgspec.json.Decoder[T], body: bytes | memoryview) -> T:
    """JSON → the value, or an error that names the field."""
    try:
        return decoder.decode(body)
    except WIRE_ERRORS as exc:
        raise wire_error(exc, decoder.type) from exc


def read_value(values: object, shape: type[T]) -> T:
    """A TOML table or a mapping → the value, or an error that names the field."""
    try:
        return msgspec.convert(values, shape)
    except msgspec.ValidationError as exc:
        raise wire_error(exc, shape) from exc


def wire_error(exc: Exception, shape: object = None) -> InvalidMessage | Malformed:
    """Translate msgspec's error: unreadable input is Malformed, a wrong value names its field.

    `shape` is the type that was read: with it, the error also says which values are right.
    """
    text = str(exc)
    if isinstance(exc, RecursionError):
        return Malformed("the JSON is nested too deeply")
    if isinstance(exc, UnicodeDecodeError):
        return Malformed("not valid JSON: not UTF-8")
    if not isinstance(exc, msgspec.ValidationError):
        return Malformed(f"not valid JSON: {text}")
    reason, _, path = text.partition(" - at `$")
    return _invalid(reason, path.removesuffix("`")[:MAX_PATH], shape)


def _invalid(reason: str, path: str, shape: object) -> InvalidMessage:
    wrong = _FIELD.fullmatch(reason)
    if wrong is not None:
        name = shortened(wrong[2])
        field = f"{path}.{name}".lstrip(".")
        if wrong[1] == "missing required":
            return InvalidMessage(field, "is required")
        return InvalidMessage(field, f"no such field{_meant(name, _fields(shape, path))}")
    chosen = _CHOICE.fullmatch(reason)
    field = path.lstrip(".") or "body"
    if chosen is not None and (choices := _choices(shape, path)):
        return InvalidMessage(
            field, f"must be one of {', '.join(choices)}, not {shortened(chosen[1])}"
        )
    if field.endswith("[...]"):  # msgspec does not say which
        field = field.removesuffix("[...]")
        return InvalidMessage(field, f"each value {_plain(reason)}")
    return InvalidMessage(field, _plain(reason))


def _plain(reason: str) -> str:
    types = _TYPES.fullmatch(reason)
    if types is None:
        return shortened(reason[:1].lower() + reason[1:], MAX_PATH)
    wanted = [_WORDS.get(name, name) for name in types[1].split(" | ") if name != "null"]
    return f"must be {' or '.join(wanted)}, not {_WORDS.get(types[2], types[2])}"


def _meant(name: str, known: tuple[str, ...]) -> str:
    close = get_close_matches(name.lower(), known, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known: {', '.join(known)}" if known else ""


def _fields(shape: object, path: str) -> tuple[str, ...]:
    """The field names that an object at this path may have."""
    names: dict[str, None] = {}
    for place in _places(shape, path):
        if isinstance(place, inspect.StructType):
            if place.tag_field is not None:
                names[place.tag_field] = None
            names |= dict.fromkeys(each.encode_name for each in place.fields)
    return tuple(names)


def _choices(shape: object, path: str) -> tuple[str, ...]:
    """The words allowed at this path."""
    words: dict[str, None] = {}
    for place in _places(shape, path):
        if isinstance(place, inspect.EnumType):
            words |= dict.fromkeys(str(member.value) for member in place.cls)
        elif isinstance(place, inspect.LiteralType):
            words |= dict.fromkeys(str(value) for value in place.values)
    parent, _, name = path.rpartition(".")
    for place in _places(shape, parent):
        if isinstance(place, inspect.StructType) and place.tag_field == name:
            words[str(place.tag)] = None
    return tuple(words)


def _places(shape: object, path: str) -> tuple[inspect.Type, ...]:
    """The types that msgspec allows at a path such as `.filter.state` or `.scope[0]`."""
    if shape is None:
        return ()
    here = tuple(_members(_type_info(shape)))
    for step in _STEP.finditer(path):
        here = tuple(each for place in here for each in _below(place, step[1]))
    return here


def _below(place: inspect.Type, name: str | None) -> Iterator[inspect.Type]:
    if isinstance(place, inspect.StructType):
        for field in place.fields:
            if field.encode_name == name:
                yield from _members(field.type)
    elif name is None and isinstance(place, inspect.CollectionType):
        yield from _members(place.item_type)
    elif name is None and isinstance(place, inspect.DictType):
        yield from _members(place.value_type)


def _members(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _members(one)
    elif isinstance(kind, inspect.Metadata):
        yield from _members(kind.type)
    else:
        yield kind


@lru_cache(maxsize=64)
def _type_info(shape: object) -> inspect.Type:
    return inspect.type_info(shape)
