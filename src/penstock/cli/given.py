"""What the options say of a message → the words that the verbs take."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from penstock.model.errors import InvalidMessage

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The message's id.")]
PayloadText = Annotated[
    str | None,
    typer.Option(
        "--payload",
        metavar="JSON",
        help="What to send: JSON, sent as it is; other text becomes a JSON string.",
    ),
]
PayloadFile = Annotated[
    Path | None,
    typer.Option("--payload-file", metavar="FILE", help="Send this file; - is standard input."),
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="Passed on to the sink; repeatable."),
]
Expires = Annotated[
    str | None, typer.Option("--expires", metavar="TIME", help="Not sent after this (RFC 3339).")
]
LabelOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="NAME=VALUE",
        help="channel, campaign, class, tz or tags (repeatable, also in one: tags=a,b).",
    ),
]


def body(text: str | None, file: Path | None, content_type: str | None) -> object:
    """JSON is sent verbatim; text with a type, and files that are not JSON, as bytes."""
    if text is not None and file is not None:
        raise InvalidMessage("payload", "give either --payload or --payload-file")
    raw = _read(file) if file is not None else None if text is None else text.encode()
    if raw is None:
        return None
    if content_type is not None:
        return raw
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as exc:
        if text is None:
            return raw
        if text.lstrip()[:1] in {"{", "[", '"'}:
            raise InvalidMessage(
                "payload", f"looks like JSON but is not ({exc}); with --content-type it is text"
            ) from exc
        return text
    return msgspec.Raw(raw)


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as exc:
        raise InvalidMessage("payload-file", f"cannot read {file}: {exc.strerror}") from exc


def pairs(given: list[str] | None, option: str) -> dict[str, str] | None:
    """NAME=VALUE, each name once."""
    if not given:
        return None
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidMessage(option, f"{text!r} must be NAME=VALUE")
        found[name] = value
    return found


def labels(given: list[str] | None) -> dict[str, object] | None:
    """NAME=VALUE; tags may come in one or in several."""
    if not given:
        return None
    found: dict[str, object] = {}
    tags: list[str] = []
    for text in given:
        ((name, value),) = (pairs([text], "label") or {}).items()
        if name in {"tag", "tags"}:
            tags += value.split(",")
        else:
            found[name] = value
    return found | ({"tags": tags} if tags else {})
