"""A driver's own settings, read once and judged by the driver alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Literal, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec

from penstock.model.errors import ConfigError

Own = TypeVar("Own", bound=msgspec.Struct)


def read_own(
    own: type[Own],
    more: Mapping[str, object],
    query: str,
    *,
    whose: str,
    wrong: Callable[[str, str], ConfigError],
) -> Own:
    """Read a driver's own options from a settings table and a URL's query (which wins).

    A name that `own` does not have is a ConfigError: nothing is silently ignored.
    """
    given = {**more, **dict(parse_qsl(query, keep_blank_values=True))}
    for name in given:
        if name not in own.__struct_fields__:
            known = ", ".join(own.__struct_fields__) or "none of its own"
            raise wrong(f"no such setting of a {whose}; its driver takes: {known}", name)
    try:
        return msgspec.convert(given, own, strict=False)
    except msgspec.ValidationError as exc:
        reason, _, path = str(exc).partition(" - at `$.")
        raise wrong(reason[:1].lower() + reason[1:], path.rstrip("`")) from exc


def read_query(own: type[Own], query: str) -> Own:
    """Read the query of a store's URL; ConfigError names the options that are valid."""
    given = dict(parse_qsl(query, keep_blank_values=True))
    fields = own.__struct_fields__
    for name in given:
        if name not in fields:
            close = get_close_matches(name, fields, n=1)
            hint = f"; did you mean {close[0]}?" if close else "."
            raise ConfigError(f"store: no option {name!r}{hint} There are: {', '.join(fields)}")
    try:
        return msgspec.convert(given, own, strict=False)
    except msgspec.ValidationError as exc:
        name = str(exc).partition("`$.")[2].rstrip("`")
        if name not in given:
            raise ConfigError(f"store: {str(exc)[:1].lower()}{str(exc)[1:]}") from exc
        wanted = _in_words(get_type_hints(own)[name])
        raise ConfigError(f"store: {name} must be {wanted}, not {given[name]!r}") from exc


def _in_words(kind: object) -> str:
    """Describe the values of that type in words."""
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    kinds = {kind, *get_args(kind)}
    if bool in kinds:
        return "true or false"
    return "a whole number" if int in kinds else "text"
