"""Bind a port, or raise an error with the reason."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable

from penstock.api.access import cannot_listen


def listen(host: str, port: int, setting: str) -> socket.socket:
    """A listening socket; ConfigError names the setting and the remedy."""
    try:
        return _bound(host, port)
    except OSError as exc:
        raise cannot_listen(setting, f"{host}:{port}", exc) from exc


def listen_first(host: str, ports: Iterable[int], setting: str) -> socket.socket:
    """A socket on the first of these ports that is free; the last one's error when none is."""
    *some, last = ports
    for port in some:
        try:
            return _bound(host, port)
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                break  # the next one would fail likewise
    return listen(host, last, setting)


def listen_shared(host: str, port: int, setting: str, number: int) -> list[socket.socket]:
    """So many listening sockets on one port (SO_REUSEPORT), one per process.

    The system distributes new connections over them. A process that keeps them all open can replace
    another without refusing a connection. ConfigError also when another program has the port.
    """
    _check_free(host, port, setting)
    listeners: list[socket.socket] = []
    try:
        for _ in range(number):
            listeners.append(_bound(host, port, shared=True))
            port = listeners[0].getsockname()[1]
    except OSError as exc:
        for listener in listeners:
            listener.close()
        raise cannot_listen(setting, f"{host}:{port}", exc) from exc
    return listeners


def hold_shared(host: str, port: int, setting: str) -> socket.socket:
    """Bind a port for processes that each listen on it themselves (SO_REUSEPORT)."""
    _check_free(host, port, setting)
    try:
        return _bound(host, port, shared=True, listening=False)
    except OSError as exc:
        raise cannot_listen(setting, f"{host}:{port}", exc) from exc


def _check_free(host: str, port: int, setting: str) -> None:
    """Sharing is for processes of our own: another program's port is taken, shared or not."""
    try:
        _bound(host, port, listening=False).close()
    except OSError as exc:
        raise cannot_listen(setting, f"{host}:{port}", exc) from exc


def url_of(host: str, port: int, scheme: str = "http") -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _bound(host: str, port: int, *, shared: bool = False, listening: bool = True) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named TCP: only then does asyncio's own loop send at once (TCP_NODELAY); else an answer in
    # two pieces waits 40 ms for the other side to confirm the first.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.setblocking(False)
        listener.bind((host, port))
        if listening:
            listener.listen(2048)
    except OSError:
        listener.close()
        raise
    return listener
