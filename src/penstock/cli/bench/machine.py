"""What this process has of the machine."""

from __future__ import annotations

import os


def cores() -> int:
    """How many it may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
