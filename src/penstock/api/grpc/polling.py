"""How gRPC's own thread waits for events: the library asks once, when it is first imported."""

from __future__ import annotations

import os

EXPERIMENTS = "GRPC_EXPERIMENTS"
"""The library's own switch; see its documentation of environment variables."""
ON_A_CONDITION = "pollset_alternative"
"""Its sockets have threads of their own by now, and this one has nothing else to wait for."""


def wait_on_a_condition() -> None:
    """Let that thread wait on a condition, not on a descriptor written and read for each event.

    For each message of a stream that is a fifth of the server's CPU. To be called before anything
    imports grpc, by a program of ours: it is the whole process that is told. What somebody has set
    stays as it is.
    """
    os.environ.setdefault(EXPERIMENTS, ON_A_CONDITION)
