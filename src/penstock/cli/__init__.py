"""The command `penstock`."""

from __future__ import annotations


def main() -> None:
    from penstock.cli.app import build

    build()(prog_name="penstock")
