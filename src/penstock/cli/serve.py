"""Servers: everything in one process, only the API, only a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.session import Session, command
from penstock.model.errors import ConfigError, InvalidMessage

if TYPE_CHECKING:
    from penstock.settings import Settings

HttpOption = Annotated[
    str | None,
    typer.Option("--http", metavar="HOST:PORT", help="Where to listen [default: api.http]."),
]
PortOption = Annotated[
    int | None,
    typer.Option(
        "--port", metavar="N", min=0, max=65535, help="Listen on this port of the same host."
    ),
]
GrpcOption = Annotated[
    str | None,
    typer.Option("--grpc", metavar="HOST:PORT", help="Where gRPC listens [default: api.grpc]."),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Listen beyond loopback without tokens, open to all callers."),
]
ProcessesOption = Annotated[
    int,
    typer.Option(
        "--processes",
        metavar="N",
        min=1,
        help="Processes on the same ports, such as one per core; SIGHUP replaces them one"
        " by one. Needs a store that several processes can open.",
    ),
]


def register(app: typer.Typer) -> None:
    command(app)(serve)
    command(app)(api)
    command(app)(worker)


def serve(
    session: Session,
    http: HttpOption = None,
    port: PortOption = None,
    grpc: GrpcOption = None,
    processes: ProcessesOption = 1,
    insecure: Insecure = False,
) -> None:
    """Run everything in one process: HTTP and gRPC API, dashboard and a worker.

    \b
    Examples:
      penstock serve
      penstock serve --port 9000 --store demo.db
      penstock serve --config penstock.toml --http 127.0.0.1:9000
    """
    _run(session, http, port, grpc, insecure=insecure, processes=processes)


def api(
    session: Session,
    http: HttpOption = None,
    port: PortOption = None,
    grpc: GrpcOption = None,
    processes: ProcessesOption = 1,
    insecure: Insecure = False,
) -> None:
    """Run only the HTTP and gRPC API: it accepts messages and sends none.

    \b
    Examples:
      penstock api --http 127.0.0.1:8700
      penstock api --processes 4
    """
    _run(session, http, port, grpc, insecure=insecure, processes=processes, with_worker=False)


def worker(session: Session) -> None:
    """Run only a worker: it sends what is due, and listens only for Prometheus and health checks.

    \b
    Examples:
      penstock worker --config penstock.toml
    """
    _run(session, with_api=False)


def check_shared(settings: Settings, needed_by: str) -> None:
    """Raise ConfigError if no other process can open this store, as `needed_by` must."""
    from penstock.wiring import in_memory

    if in_memory(settings):
        raise ConfigError(
            f"store: an in-memory store belongs to one process; {needed_by} needs a store that"
            " several can open, such as sqlite:///penstock.db, postgresql:// or redis://"
        )


def _run(
    session: Session,
    http: str | None = None,
    port: int | None = None,
    grpc: str | None = None,
    *,
    insecure: bool = False,
    processes: int = 1,
    with_api: bool = True,
    with_worker: bool = True,
) -> None:
    from penstock.cli.process import Roles, run_process

    if http is not None and port is not None:
        raise InvalidMessage("port", "is part of --http; give only one of the two")
    overrides: dict[str, object] = {"api.http": http, "api.grpc": grpc}
    if port is not None:
        host = session.settings(overrides).api.http.rpartition(":")[0]
        overrides["api.http"] = f"{host}:{port}"
    found = session.examined(overrides)
    roles = Roles(api=with_api, worker=with_worker, insecure=insecure)
    if processes > 1:
        check_shared(found.sound(), "--processes")
    if not (with_api and with_worker):
        check_shared(found.sound(), "`api`" if with_api else "`worker`")
    if processes == 1:
        run_process(found.sound(), roles, json=session.json, found=found)
        return
    from penstock.cli.processes import run_processes

    given = session.overrides | overrides
    code = run_processes(processes, roles, found, session.config, given, json=session.json)
    if code:
        raise typer.Exit(code)
