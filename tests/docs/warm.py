"""`penstock` without its import: a process that has imported it forks for each command.

    python tests/docs/warm.py SOCKET &
    python tests/docs/warm_run.py SOCKET schedule hook --delay 5s

The command gets the caller's folder, environment and streams, and ends with the caller.
"""

import contextlib
import importlib
import os
import select
import signal
import socket
import struct
import sys

import penstock.api.http.server  # noqa: F401 - what `penstock serve` loads
from penstock.cli import main
from penstock.cli.app import build

MOST = 1 << 20
STREAMS = (0, 1, 2)


def serve(path: str) -> None:
    build()
    for name in loaded_by("schedule", "default", "--payload", "1", "--store", f"{path}.db"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait
        while True:
            caller, _ = listener.accept()
            with caller:
                if os.fork() == 0:
                    listener.close()
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    attend(caller)


def loaded_by(*words: str) -> list[str]:
    """The modules that a command loads when it runs: run it in a process of its own."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), STREAMS[1])
        sys.argv = ["penstock", *words]
        with contextlib.suppress(SystemExit):
            main()
        with os.fdopen(write, "w") as names:
            names.write("\n".join(sys.modules))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as names:
        return names.read().split()


def attend(caller: socket.socket) -> None:
    """Run the caller's command and tell it the exit code, or end it when the caller is gone."""
    said, streams, _, _ = socket.recv_fds(caller, MOST, len(STREAMS))
    command = os.fork()
    if command == 0:
        become(said.decode().split("\0"), streams)
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(command)
    ready, _, _ = select.select([ended, caller.fileno()], [], [])
    if ended not in ready:
        os.kill(command, signal.SIGKILL)
    _, status = os.waitpid(command, 0)
    with contextlib.suppress(OSError):
        caller.send(struct.pack("B", os.waitstatus_to_exitcode(status) & 255))
    os._exit(0)


def become(said: list[str], streams: list[int]) -> None:
    for number, stream in zip(STREAMS, streams, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    count = int(said[0])
    folder, words, variables = said[1], said[2 : 2 + count], said[2 + count :]
    os.chdir(folder)
    os.environ.clear()
    for one in variables:
        name, _, value = one.partition("=")
        os.environ[name] = value
    sys.argv = ["penstock", *words]
    sys.path.insert(0, folder)
    code: object = 1
    try:
        main()
        code = 0
    except SystemExit as exc:
        code = exc.code or 0
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    serve(sys.argv[1])
