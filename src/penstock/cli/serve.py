"""Servers: everything in one process, only the API, only a worker."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.session import Session, command

HttpOption = Annotated[
    str | None,
    typer.Option("--http", metavar="HOST:PORT", help="Where to listen [default: api.http]."),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Listen beyond loopback without tokens: anybody may use it."),
]


def register(app: typer.Typer) -> None:
    command(app)(serve)
    command(app)(api)
    command(app)(worker)


def serve(session: Session, http: HttpOption = None, insecure: Insecure = False) -> None:
    """Run everything in one process: HTTP API, dashboard and a worker.

    \b
    Examples:
      penstock serve
      penstock serve --config penstock.toml --http 127.0.0.1:9000
    """
    _run(session, http=http, insecure=insecure, with_api=True, with_worker=True)


def api(session: Session, http: HttpOption = None, insecure: Insecure = False) -> None:
    """Run only the HTTP API: accepts and answers, releases nothing.

    \b
    Examples:
      penstock api --http 127.0.0.1:8700
    """
    _run(session, http=http, insecure=insecure, with_api=True, with_worker=False)


def worker(session: Session) -> None:
    """Run only a worker: releases what is due, and listens only for Prometheus and health checks.

    \b
    Examples:
      penstock worker --config penstock.toml
    """
    _run(session, http=None, insecure=False, with_api=False, with_worker=True)


def _run(
    session: Session, *, http: str | None, insecure: bool, with_api: bool, with_worker: bool
) -> None:
    from penstock.cli.process import Roles, run_process

    settings = session.settings({"api.http": http})
    run_process(
        settings, Roles(api=with_api, worker=with_worker, insecure=insecure), json=session.json
    )
