"""One of the processes of `penstock api --processes N`; `penstock.cli.processes` starts it."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import msgspec

from penstock.cli.place import Begin, Place
from penstock.cli.process import Roles, run_process
from penstock.cli.session import Session


def main(channel: int) -> None:
    """Serve as the first line from that file descriptor says, until stopped."""
    pair = socket.socket(fileno=channel)
    begin = msgspec.json.decode(_first_line(pair), type=Begin)
    session = Session(config=None if begin.config is None else Path(begin.config))
    try:
        with session.failing_clearly():
            found = session.examined(begin.overrides)
            roles = Roles(api=True, worker=begin.worker, insecure=begin.insecure)
            run_process(found.sound(), roles, found=found, place=Place(begin, pair))
    except Exception as exc:
        code = getattr(exc, "exit_code", None)
        if code is None:
            raise
        sys.exit(code)


def _first_line(pair: socket.socket) -> bytes:
    """Read one line and not a byte more: the rest is for the event loop."""
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = pair.recv(1)
        if not piece:
            sys.exit(0)  # the process that started this one has ended
        line += piece
    return bytes(line)
