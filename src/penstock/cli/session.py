"""What every command shares: its common options, what it acts on, and how it fails.

Common options stand before or after the command, as people type them:
`penstock --json list` and `penstock list --json` are the same.
"""

from __future__ import annotations

import asyncio
import inspect
import json as jsonlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from penstock.model.errors import (
    AlreadyReleased,
    ConfigError,
    InvalidMessage,
    Malformed,
    PenstockError,
    TooLarge,
    Unauthorized,
    UnknownMessage,
    UnknownThing,
    VersionConflict,
)

if TYPE_CHECKING:
    from penstock.sdk.async_client import AsyncClient
    from penstock.sdk.embedded import Engine
    from penstock.settings import Settings
    from penstock.wiring import Parts

    Verbs: TypeAlias = Engine | AsyncClient

FAILED = 1
BAD_USAGE = 2
_USAGE = (ConfigError, InvalidMessage, Malformed, TooLarge)
_PANEL = "Common options"


@dataclass(frozen=True, slots=True)
class Session:
    """One call of the command line."""

    config: Path | None = None
    json: bool = False
    url: str | None = None
    token: str | None = None
    ca: str | None = None

    def settings(self, overrides: Mapping[str, object] | None = None) -> Settings:
        from penstock.settings import load

        return load(self.config, overrides)

    @asynccontextmanager
    async def verbs(
        self, *, creates: bool = False, progress: Callable[[int], None] | None = None
    ) -> AsyncIterator[Verbs]:
        """The server at --url, or else the store of the config.

        Only a command that `creates` may make a store that is not there. `progress` is told how
        many messages a bulk change has changed more, where that can be known while it runs.
        """
        if self.url is not None:
            from penstock.sdk.async_client import AsyncClient

            async with AsyncClient(self.url, token=self.token, retries=2, ca=self.ca) as client:
                yield client
            return
        from penstock.sdk.embedded import engine_over

        async with self.parts(creates=creates) as parts, engine_over(parts, {}) as engine:
            if progress is not None:
                parts.observer.listen(lambda _stage, _route, number: progress(number))
            yield engine

    @asynccontextmanager
    async def parts(self, *, creates: bool = False) -> AsyncIterator[Parts]:
        """The store of the config, opened here."""
        from penstock.wiring import in_memory, nothing_to_read, open_parts

        settings = self.settings()
        if creates and in_memory(settings):
            raise ConfigError(
                "store: one in memory ends with this command, and what it was given with it."
                " Name another store with --config or PENSTOCK_STORE, or a running server"
                " with --url",
                field="store",
            )
        missing = None if creates else nothing_to_read(settings)
        if missing is not None:
            raise UnknownThing(
                f"nothing to read: {missing}. Schedule something first, name another store"
                " with --config or PENSTOCK_STORE, or a running server with --url"
            )
        async with open_parts(settings) as parts:
            yield parts

    @contextmanager
    def failing_clearly(self) -> Iterator[None]:
        """PenstockError → one sentence on stderr and an exit code; never a traceback."""
        try:
            yield
        except* PenstockError as group:
            exc = _first(group)
            print(self.told(exc), file=sys.stderr)
            raise typer.Exit(BAD_USAGE if isinstance(exc, _USAGE) else FAILED) from None

    def told(self, exc: PenstockError) -> str:
        message = exc.message
        if type(exc) is Unauthorized:
            message += " (on the command line: --token or PENSTOCK_TOKEN)"
        if not self.json:
            return f"penstock: {message}"
        more: dict[str, object] = {}
        if isinstance(exc, ConfigError):
            more["problems"] = exc.problems
        if isinstance(exc, AlreadyReleased | UnknownMessage | VersionConflict):
            more["id"] = exc.message_id  # which of several
        return json_error(exc.code, message, exc.field, **more)


def json_error(code: str, message: str, field: str | None = None, **more: object) -> str:
    """An error for machines, in the shape it has over HTTP."""
    error = {"code": code, "message": message, "field": field, **more}
    return jsonlib.dumps({"error": error}, ensure_ascii=False)


def _first(group: BaseExceptionGroup[PenstockError]) -> PenstockError:
    """Parts that run side by side fail as a group; the first reason is the one to tell."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file [default: penstock.toml if it is there; env PENSTOCK_CONFIG].",
        rich_help_panel=_PANEL,
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="JSON for machines.", rich_help_panel=_PANEL)
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Act on a running server, not on the store itself [env PENSTOCK_URL].",
        rich_help_panel=_PANEL,
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TEXT",
        help="Bearer token for --url [env PENSTOCK_TOKEN].",
        rich_help_panel=_PANEL,
    ),
]
CaOption = Annotated[
    str | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        help="Authorities to trust for an https --url [env PENSTOCK_CA; default: the usual ones].",
        rich_help_panel=_PANEL,
    ),
]
_LOCAL: dict[str, tuple[Any, object]] = {
    "config": (ConfigOption, None),
    "json": (JsonOption, False),
}
_REMOTE: dict[str, tuple[Any, object]] = {
    "url": (UrlOption, None),
    "token": (TokenOption, None),
    "ca": (CaOption, None),
}


def confirm(question: str) -> None:
    """Go on only after a yes; any other answer, or none, ends the command with exit 1."""
    try:
        typer.confirm(question, abort=True, err=True)
    except typer.Abort:
        if not sys.stdin.isatty():
            typer.echo("\nnot confirmed, nothing was done: --yes does not ask", err=True)
        raise


def command(
    app: typer.Typer, name: str | None = None, *, remote: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that takes a Session first; `remote`: it can act through --url."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        common = _LOCAL | (_REMOTE if remote else {})
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

        def run(ctx: typer.Context, **values: Any) -> None:
            session = _session(ctx, {name: values.pop(name) for name in common})
            with session.failing_clearly():
                result = function(session, **values)
                if inspect.iscoroutine(result):
                    asyncio.run(result)

        _sign(run, own, common, function)
        short = _first_paragraph(function.__doc__ or "")
        app.command(name or function.__name__.rstrip("_"), short_help=short)(run)
        return function

    return register


def group(
    app: typer.Typer, help_text: str, own: dict[str, tuple[Any, object]] | None = None
) -> None:
    """Let the common options stand before the command too, beside the group's own."""

    def before(ctx: typer.Context, **values: Any) -> None:
        ctx.obj = {**(ctx.obj or {}), **{name: v for name, v in values.items() if v}}

    _sign(before, [], (own or {}) | _LOCAL | _REMOTE, before)
    before.__doc__ = help_text
    app.callback(short_help=_first_paragraph(help_text))(before)


def _first_paragraph(text: str) -> str:
    """For lists of commands: whole, where typer would cut it short with dots."""
    return " ".join(inspect.cleandoc(text).split("\n\n", 1)[0].split())


def _sign(
    run: Callable[..., None],
    own: list[inspect.Parameter],
    common: dict[str, tuple[Any, object]],
    like: Callable[..., Any],
) -> None:
    """Show typer the parameters it is to read."""
    ctx = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    shared = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )
        for name, (annotation, default) in common.items()
    ]
    parameters = [
        ctx,
        *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own),
        *shared,
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__doc__ = like.__doc__
    run.__name__ = like.__name__


def _session(ctx: typer.Context, values: dict[str, Any]) -> Session:
    """After the command wins over before it, and that over the environment."""
    from penstock.settings_origin import client_value

    merged = {**(ctx.obj or {}), **{name: value for name, value in values.items() if value}}
    config = merged.get("config") or client_value("config")
    url = merged.get("url") or (client_value("url") if "url" in values else None)
    return Session(
        config=None if config is None else Path(config),
        json=bool(merged.get("json")),
        url=url,
        token=merged.get("token") or client_value("token"),
        ca=merged.get("ca") or client_value("ca"),
    )
