"""A driver's own settings, read once and judged by the driver alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar
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
    """From a settings table and a URL's query (which wins).

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
