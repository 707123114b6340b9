"""The command `penstock`."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""The exit code of a program that Ctrl-C ended."""


def main() -> None:
    try:
        from penstock.cli.app import build
    except ModuleNotFoundError as exc:
        if (exc.name or "").startswith("penstock"):
            raise
        from penstock.model.errors import missing_extra

        print(missing_extra("the command line", "server"), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # before anything has begun
        sys.exit(INTERRUPTED)
    build()(prog_name="penstock")
