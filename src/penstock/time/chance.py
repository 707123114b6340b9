"""Random sources: the one place that makes one when the caller passes none.

`flow/` and `rooms/` draw from the source they are given, so that a whole fleet repeats itself under
a seed. In real use no source is passed, and each part gets a fresh one here.
"""

from __future__ import annotations

import os
import random
import secrets


def given_or_fresh(chance: random.Random | None) -> random.Random:
    """That source, or an unpredictable one of its own; a forked child's is another."""
    if chance is not None:
        return chance
    fresh = random.Random(os.urandom(16))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: fresh.seed(os.urandom(16)))
    return fresh


def secret_word() -> str:
    """An unpredictable word."""
    return secrets.token_urlsafe(16)
