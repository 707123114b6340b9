"""How a process that this one started has ended, in words for the log."""

from __future__ import annotations

import signal


def how_it_ended(code: int) -> str:
    """Describe a return code: "ended with code 1", "was killed by SIGKILL"."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
