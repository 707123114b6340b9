"""The command `penstock`."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from penstock.cli.app import build
    except ModuleNotFoundError as exc:
        if (exc.name or "").startswith("penstock"):
            raise
        from penstock.model.errors import missing_extra

        print(missing_extra("the command line", "server"), file=sys.stderr)
        sys.exit(2)
    build()(prog_name="penstock")
