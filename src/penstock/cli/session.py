"""The parts that every command shares: common options, the store or server, and errors.

Common options stand before or after the command, as people type them: `penstock --json list` and
`penstock list --json` are the same.
"""

from __future__ import annotations

import asyncio
import inspect
import json as jsonlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import typer

from penstock.cli.help import COMMON, Command, Group
from penstock.cli.show import Times
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
    from penstock.settings import Examined, Settings
    from penstock.wiring import Parts

    Verbs: TypeAlias = Engine | AsyncClient

T = TypeVar("T")
IN_MEMORY = (
    "store: an in-memory store is discarded when this command exits, so what it writes would be"
    " lost. Name another store with --store or PENSTOCK_STORE, or a running server with --url"
)
FAILED = 1
BAD_USAGE = 2
_USAGE = (ConfigError, InvalidMessage, Malformed, TooLarge)


@dataclass(frozen=True, slots=True)
class Session:
    """One call of the command line."""

    config: Path | None = None
    json: bool = False
    url: str | None = None
    token: str | None = None
    ca: str | None = None
    local: bool = False
    store: str | None = None

    @property
    def times(self) -> Times:
        """How this call shows moments."""
        return Times(local=self.local, terminal=sys.stdout.isatty())

    def settings(self, overrides: Mapping[str, object] | None = None) -> Settings:
        return self.examined(overrides).sound()

    def examined(self, overrides: Mapping[str, object] | None = None) -> Examined:
        """The settings, and everything that is wrong with them or may be."""
        from penstock.settings import examine

        return examine(self.config, {**self.overrides, **(overrides or {})})

    @property
    def overrides(self) -> dict[str, object]:
        """The settings that the common options override."""
        return {"store": self.store}

    async def creating(self, act: Callable[[Verbs], Awaitable[T]], *, dry_run: bool = False) -> T:
        """Act on the server at --url or the store of the settings, creating a store if needed.

        A missing store is created only for a command that an empty one would accept, so a refused
        command leaves nothing behind, and neither does a `dry_run`.
        """
        from penstock.sdk.embedded import engine_over
        from penstock.wiring import in_memory, nothing_to_read, open_parts

        if self.url is None:
            settings = self.settings()
            if in_memory(settings):
                raise ConfigError(IN_MEMORY, field="store")
            if nothing_to_read(settings) is not None:
                rehearsal = settings.model_copy(update={"store": "memory://"})
                async with open_parts(rehearsal) as parts, engine_over(parts, {}) as engine:
                    answer = await act(engine)
                if dry_run:
                    return answer
        async with self.verbs(creates=True) as verbs:
            return await act(verbs)

    @asynccontextmanager
    async def verbs(
        self, *, creates: bool = False, progress: Callable[[int], None] | None = None
    ) -> AsyncIterator[Verbs]:
        """The server at --url, or else the store of the config.

        Only a command that `creates` may make a store that is not there. `progress` is called with
        the number of messages that a bulk change has just changed, where the store is opened here.
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
        from penstock.wiring import nothing_to_read, open_parts

        settings = self.settings()
        missing = None if creates else nothing_to_read(settings)
        if missing is not None:
            raise UnknownThing(
                f"nothing to read: {missing}. Schedule something first, or name another store with"
                " --store or --config, or a running server with --url"
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
            print(self.error_text(exc), file=sys.stderr)
            raise typer.Exit(BAD_USAGE if isinstance(exc, _USAGE) else FAILED) from None

    def error_text(self, exc: PenstockError) -> str:
        """One sentence, or with --json the error as the HTTP API writes it."""
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
    """The first error of a group: parts that run side by side fail together."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file [default: ./penstock.toml, else /etc/penstock/penstock.toml; env"
        " PENSTOCK_CONFIG].",
        rich_help_panel=COMMON,
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="JSON for machines.", rich_help_panel=COMMON)
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Act on a running server, not on the store itself [env PENSTOCK_URL].",
        rich_help_panel=COMMON,
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TEXT",
        help="Bearer token for --url [env PENSTOCK_TOKEN].",
        rich_help_panel=COMMON,
    ),
]
CaOption = Annotated[
    str | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        help="Authorities to trust for an https --url [env PENSTOCK_CA; default: the usual ones].",
        rich_help_panel=COMMON,
    ),
]
LocalOption = Annotated[
    bool,
    typer.Option(
        "--local",
        help="Times in the zone of this machine [default: UTC; on a terminal also relative].",
        rich_help_panel=COMMON,
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="A store other than that of the settings: its URL, or the path of a SQLite file"
        " [env PENSTOCK_STORE].",
        rich_help_panel=COMMON,
    ),
]
_LOCAL: dict[str, tuple[Any, object]] = {
    "config": (ConfigOption, None),
    "store": (StoreOption, None),
    "json": (JsonOption, False),
}
_REMOTE: dict[str, tuple[Any, object]] = {
    "url": (UrlOption, None),
    "token": (TokenOption, None),
    "ca": (CaOption, None),
    "local": (LocalOption, False),
}


def must_ask(yes: bool) -> bool:
    """True if an irreversible command must be confirmed.

    Without a terminal, InvalidMessage (exit 2) before anything is done: a script passes --yes.
    """
    if yes:
        return False
    if not can_ask():
        raise InvalidMessage("--yes", "there is no terminal to ask on; add --yes to go ahead")
    return True


def can_ask() -> bool:
    """Whether a user at a terminal can answer a question."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str) -> None:
    """Go on only after a yes; any other answer, or none, ends the command with exit 1."""
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:  # the end of the input, or Ctrl-C
        print(file=sys.stderr)
        agreed = False
    if not agreed:
        print("nothing was changed", file=sys.stderr)
        raise typer.Exit(FAILED)


def command(
    app: typer.Typer, name: str | None = None, *, remote: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that takes a Session first; `remote`: it can act through --url."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        common = _LOCAL | (_REMOTE if remote else {})
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

        def run(ctx: typer.Context, **values: Any) -> None:
            session = session_of(ctx, {name: values.pop(name) for name in common})
            with session.failing_clearly():
                result = function(session, **values)
                if inspect.iscoroutine(result):
                    asyncio.run(result)

        _sign(run, own, common, function)
        short = _first_paragraph(function.__doc__ or "")
        called = name or function.__name__.rstrip("_")
        app.command(called, short_help=short, cls=Command)(run)
        return function

    return register


def group(
    app: typer.Typer,
    help_text: str,
    own: dict[str, tuple[Any, object]] | None = None,
    cls: type[Group] = Group,
) -> None:
    """Let the common options stand before the command too, beside the group's own."""

    def before(ctx: typer.Context, **values: Any) -> None:
        ctx.obj = {**(ctx.obj or {}), **{name: v for name, v in values.items() if v}}

    _sign(before, [], (own or {}) | _LOCAL | _REMOTE, before)
    before.__doc__ = help_text
    app.callback(short_help=_first_paragraph(help_text), cls=cls)(before)


def _first_paragraph(text: str) -> str:
    """The first paragraph for lists of commands, which typer would truncate."""
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


def _given(ctx: Any, name: str) -> Any:
    """A common option of a command line that is being completed: the innermost that is given."""
    while ctx is not None:
        if ctx.params.get(name):
            return ctx.params[name]
        ctx = ctx.parent
    return None


def session_of(ctx: typer.Context, values: Mapping[str, Any] | None = None) -> Session:
    """The session: options after the command win over those before it, and these over the
    environment.

    Without `values` they are those of a command line that is being completed.
    """
    from penstock.settings_origin import client_value

    if values is None:
        values = {name: _given(ctx, name) for name in _LOCAL | _REMOTE}
    merged = {**(ctx.obj or {}), **{name: value for name, value in values.items() if value}}
    config = merged.get("config") or client_value("config")
    url = merged.get("url") or (client_value("url") if "url" in values else None)
    return Session(
        config=None if config is None else Path(config),
        json=bool(merged.get("json")),
        url=url,
        token=merged.get("token") or client_value("token"),
        ca=merged.get("ca") or client_value("ca"),
        local=bool(merged.get("local")),
        store=merged.get("store"),
    )
