"""Options that several commands take, worded once, and how their values are read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, TypedDict

import msgspec
import typer

from penstock.cli.names import routes
from penstock.model.errors import InvalidMessage

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The message's id.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="The messages' ids.")]
RouteFilter = Annotated[
    str | None,
    typer.Option(
        "--route", metavar="ROUTE", help="Only messages of this route.", autocompletion=routes
    ),
]
KeyFilter = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Only messages with this key.")
]
DueFrom = Annotated[
    str | None, typer.Option("--due-from", metavar="TIME", help="Due at or after (RFC 3339).")
]
DueTo = Annotated[
    str | None, typer.Option("--due-to", metavar="TIME", help="Due before (RFC 3339).")
]
ErrorFilter = Annotated[
    str | None,
    typer.Option(
        "--error", metavar="TEXT", help="Only messages whose last error contains this text."
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, max=1000, help="Messages per page.")
]
CursorOption = Annotated[
    str | None,
    typer.Option(
        "--cursor", metavar="TEXT", help="Continue after the page that printed this cursor."
    ),
]
All = Annotated[
    bool, typer.Option("--all", help="Every page; with --json one message per line (NDJSON).")
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="When: RFC 3339, 2030-01-31T09:00:00+02:00."),
]
DelayOption = Annotated[
    str | None,
    typer.Option("--delay", metavar="DURATION", help="In how long: 90 (s), 1500ms, 15m, 2h, 3d."),
]
Version = Annotated[
    int | None,
    typer.Option("--version", metavar="N", min=1, help="Only if it is still at this version."),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask first; needed where there is no terminal.")
]
Sure = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count the messages that match.")]
PayloadText = Annotated[
    str | None,
    typer.Option(
        "--payload",
        metavar="JSON|@FILE|-",
        help="What to send: JSON as it is, other text as a JSON string; @FILE sends a file,"
        " - standard input.",
    ),
]
PayloadFile = Annotated[
    Path | None,
    typer.Option(
        "--payload-file", metavar="FILE", hidden=True, help="The same as --payload @FILE."
    ),
]
ContentType = Annotated[
    str | None,
    typer.Option("--content-type", metavar="TYPE", help="Send the payload as it is, as this type."),
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="Passed on to the sink; repeatable."),
]
Expires = Annotated[
    str | None,
    typer.Option("--expires", metavar="TIME", help="Do not send after this time (RFC 3339)."),
]
LabelOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="NAME=VALUE",
        help="channel, campaign, class, tz or tags (tags=a,b); repeatable.",
    ),
]


class Where(TypedDict, total=False):
    """The filter options, as the verbs take them."""

    state: str | None
    route: str | None
    key: str | None
    due_from: str | None
    due_to: str | None
    error: str | None


def body(text: str | None, file: Path | None, content_type: str | None) -> object:
    """JSON is sent verbatim; text with a type, and files that are not JSON, as bytes."""
    if text is not None and file is not None:
        raise InvalidMessage("payload", "give either --payload or --payload-file")
    if file is not None:
        text = "-" if str(file) == "-" else f"@{file}"
    if text is None:
        return None
    raw, is_text = read_argument(text, "payload"), not names_file(text)
    if content_type is not None:
        return raw
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as exc:
        if not is_text:
            return raw
        if text.lstrip()[:1] in {"{", "[", '"'}:
            raise InvalidMessage(
                "payload", f"looks like JSON but is not ({exc}); with --content-type it is text"
            ) from exc
        return text
    return msgspec.Raw(raw)


def names_file(argument: str) -> bool:
    """True if the argument is @FILE or -, and not the value itself."""
    return argument == "-" or argument.startswith("@")


def read_argument(argument: str, option: str) -> bytes:
    """The text itself, the file that `@FILE` names, or standard input for `-`."""
    if argument == "-":
        return sys.stdin.buffer.read()
    if not names_file(argument):
        return argument.encode()
    try:
        return Path(argument[1:]).read_bytes()
    except OSError as exc:
        raise InvalidMessage(option, f"cannot read {argument[1:]} ({exc.strerror})") from exc


def pair(text: str, option: str) -> tuple[str, str]:
    """NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidMessage(option, f"{text!r} must be NAME=VALUE")
    return name, value


def headers(texts: list[str] | None) -> dict[str, str] | None:
    """NAME=VALUE, each name once; None: none were given."""
    return dict(pair(text, "header") for text in texts) if texts else None


def labels(texts: list[str] | None) -> dict[str, object] | None:
    """Read NAME=VALUE labels; tags may come in one or in several."""
    if not texts:
        return None
    found: dict[str, object] = {}
    tags: list[str] = []
    for text in texts:
        name, value = pair(text, "label")
        if name in {"tag", "tags"}:
            tags += value.split(",")
        else:
            found[name] = value
    return found | ({"tags": tags} if tags else {})
