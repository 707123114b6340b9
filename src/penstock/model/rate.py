"""Rates as operators write them: a number per unit of time."""

from __future__ import annotations

import re

from penstock.model.errors import InvalidMessage

_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)/(s|m|h)", re.ASCII)
_PER = {"s": 1, "m": 60, "h": 3600}


def parse_rate(text: str, field: str = "rate") -> float:
    """ "100/s", "90/m" or "10/h" → messages a second."""
    match = _RATE.fullmatch(text)
    rate = 0.0 if match is None else float(match[1]) / _PER[match[2]]
    if rate <= 0:
        raise InvalidMessage(field, 'must be more than 0 a time, such as "100/s" or "30/m"')
    return rate
