"""What a program pays for a client: few modules, and no part of a server."""

from __future__ import annotations

import subprocess
import sys

MOST = 30
COUNT = """
import sys, penstock
assert [name for name in sys.modules if name.startswith("penstock")] == [
    "penstock.version", "penstock"], "import penstock loads more than itself"
penstock.Client
print(*[name for name in sys.modules if name.startswith("penstock")])
"""
SERVER = ("penstock.api.http", "penstock.flow", "penstock.stores", "penstock.wiring", "uvicorn")


def test_a_client_loads_few_modules_and_nothing_of_a_server() -> None:
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert len(loaded) <= MOST, loaded
    assert not [name for name in loaded if name.startswith(SERVER)]
