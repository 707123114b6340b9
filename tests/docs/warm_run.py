"""`warm_run.py SOCKET WORDS…` runs a command in the process of `warm.py`."""

import os
import socket
import sys

STREAMS = (0, 1, 2)


def run(path: str, words: list[str]) -> int:
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    folder = os.getcwd()  # noqa: PTH109 - pathlib would cost as much as the rest
    said = "\0".join([str(len(words)), folder, *words, *variables]).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [said], list(STREAMS))
        answer = server.recv(1)
    return answer[0] if answer else 1


sys.exit(run(sys.argv[1], sys.argv[2:]))
