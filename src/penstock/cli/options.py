"""Options that several commands take, worded once."""

from __future__ import annotations

from typing import Annotated, TypedDict

import typer

RouteFilter = Annotated[str | None, typer.Option("--route", help="Only of this route.")]
KeyFilter = Annotated[str | None, typer.Option("--key", help="Only of this key.")]
DueFrom = Annotated[
    str | None, typer.Option("--due-from", metavar="TIME", help="Due at or after (RFC 3339).")
]
DueTo = Annotated[
    str | None, typer.Option("--due-to", metavar="TIME", help="Due before (RFC 3339).")
]
ErrorFilter = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="A piece of the last error.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="Messages of one page.")]
CursorOption = Annotated[
    str | None, typer.Option("--cursor", metavar="TEXT", help="`next` of the page before.")
]
All = Annotated[
    bool, typer.Option("--all", help="Every page; with --json one message a line (NDJSON).")
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="When: RFC 3339, 2030-01-31T09:00:00+02:00."),
]
DelayOption = Annotated[
    str | None,
    typer.Option("--delay", metavar="TIME", help="In how long: 90 (s), 1500ms, 15m, 2h, 3d."),
]
Version = Annotated[
    int | None, typer.Option("--version", min=1, help="Only if it is still at this version.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what would be done.")]


class Where(TypedDict, total=False):
    """The filter options, as the verbs take them."""

    state: str | None
    route: str | None
    key: str | None
    due_from: str | None
    due_to: str | None
    error: str | None
