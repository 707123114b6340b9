"""What can go wrong with the world that simulations stand in for."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from penstock.model.errors import PenstockError, missing_extra


class Unreachable(PenstockError):
    """Nobody answers where a simulation was told to go."""

    code = "unreachable"


def client_library(module: str, extra: str) -> ModuleType:
    """A vendor's library, or the sentence that says how to get it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as exc:
        raise missing_extra("this", extra) from exc
