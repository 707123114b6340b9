"""Chance, as something that is given: the one place where it comes from when nobody gave any.

`flow/` and `rooms/` draw from the source they are given, so that a whole fleet repeats itself
under a seed. Composed for real use, nobody gives one, and each part gets a fresh one here.
"""

from __future__ import annotations

import os
import random
import secrets


def given_or_fresh(chance: random.Random | None) -> random.Random:
    """That source, or one of its own that nobody can foresee; a forked child's is another."""
    if chance is not None:
        return chance
    fresh = random.Random(os.urandom(16))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: fresh.seed(os.urandom(16)))
    return fresh


def secret_word() -> str:
    """Something nobody can guess."""
    return secrets.token_urlsafe(16)
