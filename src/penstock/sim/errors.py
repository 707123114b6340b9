"""Errors of simulations: an unreachable server, a missing library."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from penstock.model.errors import PenstockError, missing_extra


class Unreachable(PenstockError):
    """No server answers at the address given to a simulation."""

    code = "unreachable"


def client_library(module: str, extra: str) -> ModuleType:
    """A vendor's library, or an error that says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as exc:
        raise missing_extra("this", extra) from exc
