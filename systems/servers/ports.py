"""Ports for servers of our own."""

from __future__ import annotations

import random
import socket

_LOWEST, _HIGHEST = 10_000, 30_000
"""Below what the system gives to outgoing connections, and low enough for a cluster's + 10,000."""
_CHANCE = random.SystemRandom()
"""Not the module's own source: Hypothesis seeds that with the same number in every test process,
and two of them would then choose the same ports in the same order."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses now, nor takes by chance before it is used."""
    while True:
        port = _CHANCE.randrange(_LOWEST, _HIGHEST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
