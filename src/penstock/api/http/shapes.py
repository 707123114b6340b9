"""The wire structs of requests and answers, besides the model's Draft, Patch and views."""

from __future__ import annotations

import msgspec

from penstock.api.http.errors import ErrorInfo
from penstock.model.query import Filter
from penstock.model.rate import parse_rate
from penstock.model.state import State
from penstock.model.times import parse_moment
from penstock.model.wire import read_json


class Refused(msgspec.Struct, frozen=True):
    """The outcome of one item of a batch that was not taken."""

    id: str | None
    error: ErrorInfo


class FilterIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions on messages; all that are given must match."""

    state: State | None = None
    route: str | None = None
    key: str | None = None
    due_from: str | None = None
    due_to: str | None = None
    error: str | None = None

    def as_filter(self, prefix: str = "filter.") -> Filter:
        return Filter(
            state=self.state,
            route=self.route,
            key=self.key,
            due_from=_moment(self.due_from, f"{prefix}due_from"),
            due_to=_moment(self.due_to, f"{prefix}due_to"),
            error=self.error,
        )


class BulkIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The messages, how fast (redrive only), and whether only to count them."""

    filter: FilterIn
    rate: str | None = None
    dry_run: bool = False

    def per_second(self) -> float | None:
        return None if self.rate is None else parse_rate(self.rate)


class MoveIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The messages, their new due time (one of `at` and `delay`), or only their number."""

    filter: FilterIn
    at: str | None = None
    delay: float | str | None = None
    dry_run: bool = False


class ForgetIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The key whose messages and counters are erased; `cursor`: where an earlier call stopped."""

    key: str
    cursor: str | None = None


_forget_decoder = msgspec.json.Decoder(ForgetIn)
_bulk_decoder = msgspec.json.Decoder(BulkIn)
_move_decoder = msgspec.json.Decoder(MoveIn)


def decode_bulk(body: bytes) -> BulkIn:
    bulk = read_json(_bulk_decoder, body)
    bulk.per_second()  # a rate that is none is an error for a cancel, too
    return bulk


def decode_move(body: bytes) -> MoveIn:
    return read_json(_move_decoder, body)


def decode_forget(body: bytes) -> ForgetIn:
    return read_json(_forget_decoder, body)


def _moment(text: str | None, field: str) -> int | None:
    return None if text is None else parse_moment(text, field)
