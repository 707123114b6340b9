"""`penstock init`: a settings file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import show
from penstock.cli.session import Session, command
from penstock.model.errors import ConfigError

TEMPLATE = Path(__file__).with_name("template.toml")
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.")]


def register(app: typer.Typer) -> None:
    command(app)(init)


def init(session: Session, file: FileArgument = Path("penstock.toml")) -> None:
    """Write a settings file with comments; a file that is there is left alone (exit 2).

    \b
    Examples:
      penstock init
      penstock init /etc/penstock/penstock.toml
    """
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(TEMPLATE.read_text(encoding="utf-8"))
    except FileExistsError as exc:
        raise ConfigError(f"{file} is already there; it was left as it is") from exc
    except OSError as exc:
        raise ConfigError(f"{file} cannot be written: {exc.strerror}") from exc
    if session.json:
        show.as_json({"file": str(file.absolute())})
    else:
        show.as_text(f"{file} is written; edit it, then: penstock doctor, penstock serve")
