"""How gRPC's own thread waits is said before the library is there, by a program of ours."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.api.grpc.polling import EXPERIMENTS, ON_A_CONDITION, wait_on_a_condition


def test_what_somebody_has_set_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(EXPERIMENTS, raising=False)
    wait_on_a_condition()
    assert os.environ[EXPERIMENTS] == ON_A_CONDITION
    for theirs in ("another", ""):
        monkeypatch.setenv(EXPERIMENTS, theirs)
        wait_on_a_condition()
        assert os.environ[EXPERIMENTS] == theirs


PROCESS = f"""
import os, sys
from penstock.cli import process

class Told(Exception): ...

def set_up_tracing():
    raise Told(os.environ.get({EXPERIMENTS!r}))

process.set_up_tracing = set_up_tracing
for worker_only in (True, False):
    try:
        roles = process.Roles(api=not worker_only, worker=worker_only)
        process.run_process(process.Settings(), roles)
    except Told as told:
        print(told, "grpc" in sys.modules)
"""


@pytest.mark.slow
def test_a_process_that_serves_says_so_before_anything_imports_the_library() -> None:
    env = {name: value for name, value in os.environ.items() if name != EXPERIMENTS}
    ran = subprocess.run(
        [sys.executable, "-c", PROCESS], env=env, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split("\n")[:2] == ["None False", f"{ON_A_CONDITION} False"]
