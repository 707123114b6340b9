"""What is kept of a profile."""

from __future__ import annotations

from bench.profile_text import summary

RAW = """\
main (/venv/lib/python3.11/runpy.py:88);put (/home/x/src/penstock/flow/intake.py:10) 3
main (/venv/lib/python3.11/runpy.py:88);put (/home/x/src/penstock/flow/intake.py:12) 1
main (/venv/lib/python3.11/runpy.py:88) 4
py-spy said something
"""


def test_a_functions_own_time_and_what_it_calls_are_told_apart() -> None:
    told = summary("put", RAW)
    itself, _, within = told.partition("with what it calls")
    assert "put: 8 samples" in itself
    assert " 50.0 put (penstock/flow/intake.py)" in itself
    assert "100.0 main (runpy.py)" in within
    assert "/home" not in told
