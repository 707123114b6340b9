"""Settings: check them, and show those in force with the origin of each value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import show
from penstock.cli.session import Session, command, group
from penstock.model.errors import ConfigError

if TYPE_CHECKING:
    from penstock.settings import Settings

app = typer.Typer(no_args_is_help=True)
group(app, "Settings: check, show.")


@command(app)
async def check(
    session: Session,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow an open bind, as `serve --insecure` does.")
    ] = False,
) -> None:
    """Check every setting, that each sink and the store have a driver, and that a server may start.

    Nothing is connected to and nothing is made. Exit 2 lists every problem (with --json as
    `problems`). What may be a mistake, such as a policy for a route that is not configured, is a
    warning.

    \b
    Examples:
      penstock config check --config penstock.toml
    """
    from penstock.api.access import Tokens

    found = session.examined()
    problems = [*found.problems, *await server_problems(found.settings, insecure=insecure)]
    if problems:
        raise ConfigError.of(problems)
    routes = sorted(found.settings.all_routes())
    warnings = [*found.warnings, *Tokens(found.settings.api).warnings]
    if session.json:
        shown = {"warnings": warnings} if warnings else {}
        show.as_json({"status": "ok", "routes": routes, **shown})
        return
    where = "the defaults (no penstock.toml here)" if found.file is None else str(found.file)
    show.as_text(f"{where}: settings are good; routes: {', '.join(routes)}")
    show.as_text(*(f"warning: {warning}" for warning in warnings))


@command(app, name="show")
def show_(session: Session) -> None:
    """Show the settings in force and where each came from; secrets are left out.

    \b
    Examples:
      penstock config show
    """
    from penstock.cli.config_text import rows
    from penstock.settings import load_with_origins

    settings, read = load_with_origins(session.config, session.overrides)
    shown = rows(settings, read)
    if session.json:
        show.as_json({path: {"value": value, "from": origin} for path, value, origin in shown})
    else:
        show.table(("setting", "/value", "~from"), [(p, _text(v), o) for p, v, o in shown])


async def server_problems(settings: Settings, *, insecure: bool = False) -> list[str]:
    """Why a server would not start with settings that are well-formed; connects to nothing."""
    from penstock.api.access import Tokens
    from penstock.api.tls import server_tls
    from penstock.settings import OFF
    from penstock.wiring import driver_problems

    problems = await driver_problems(settings)

    api = settings.api
    try:
        tokens = Tokens(api)
    except ConfigError as exc:
        return [*problems, exc.message]
    try:
        server_tls(api)
    except ConfigError as exc:
        problems.append(exc.message)
    listening = {"api.http": api.http, "api.grpc": api.grpc}
    for setting, address in listening.items():
        try:
            if address != OFF:
                tokens.check_bind(setting, address, insecure=insecure)
        except ConfigError as exc:
            problems.append(exc.message)
    return problems


def _text(value: object) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else str(value)
