"""The formats of a source's records: one small pure function per format.

A format reads a record's bytes into drafts. An error of the record as a whole is raised; an error
of one of its messages is returned at that message's index in the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from penstock.flow.formats import message
from penstock.model.draft import Draft
from penstock.model.errors import PenstockError

Drafts: TypeAlias = Sequence[Draft | PenstockError]

Read: TypeAlias = Callable[[bytes, str | None, int], Drafts]
"""(the record's bytes, its origin, now) → its messages."""

Alone: TypeAlias = Callable[[bytes, Sequence[int]], Sequence[bytes] | None]
"""(the record's bytes, indexes in it) → one record per message at these indexes, for the dead
letter; None: the record is a single message.
"""


class Format(msgspec.Struct, frozen=True):
    """How records are read, and how many at once."""

    read: Read
    alone: Alone | None = None
    """Set by formats whose records may hold many messages."""
    records: int | None = None
    """Records to read at once where one may hold a thousand messages."""
    by_method: Callable[..., Drafts] | None = None
    """Like `read`, with `routes`: the method of a message (in lower case) → its route."""

    def reader(self, routes: Mapping[str, str]) -> Read:
        """The function that reads records; `routes` by method apply if the format has methods."""
        if not routes or self.by_method is None:
            return self.read
        return partial(self.by_method, routes={word.lower(): to for word, to in routes.items()})


MESSAGE = Format(message.read, alone=message.alone)
"""The JSON of `POST /v1/messages`."""
