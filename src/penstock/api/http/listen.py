"""Take a port, or say clearly why it cannot be had."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable

from penstock.api.access import cannot_listen


def listen(host: str, port: int, setting: str) -> socket.socket:
    """A listening socket; ConfigError names the setting and what to do."""
    try:
        return _bound(host, port)
    except OSError as exc:
        raise cannot_listen(setting, f"{host}:{port}", exc) from exc


def listen_first(host: str, ports: Iterable[int], setting: str) -> socket.socket:
    """On the first of these ports that is free; the last one's error when none is."""
    *some, last = ports
    for port in some:
        try:
            return _bound(host, port)
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                break  # the next one would fail likewise
    return listen(host, last, setting)


def url_of(host: str, port: int, scheme: str = "http") -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named TCP: only then does asyncio's own loop send at once (TCP_NODELAY); else an answer in
    # two pieces waits 40 ms for the other side to confirm the first.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError:
        listener.close()
        raise
    return listener
