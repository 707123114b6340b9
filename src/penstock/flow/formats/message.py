"""message — the JSON of `POST /v1/messages`, or an array of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.flow.formats.wire import derived_id
from penstock.model.draft import Draft, decode_draft
from penstock.model.errors import PenstockError
from penstock.model.wire import read_json

_array = msgspec.json.Decoder(list[msgspec.Raw])


def read(body: bytes, origin: str | None, _now: int) -> Sequence[Draft | PenstockError]:
    if not _is_array(body):
        return [_identified(decode_draft(body), origin, 0)]
    found: list[Draft | PenstockError] = []
    raws: list[msgspec.Raw] = read_json(_array, body)
    for index, raw in enumerate(raws):
        try:
            found.append(_identified(decode_draft(memoryview(raw)), origin, index))
        except PenstockError as exc:
            found.append(exc)
    return found


def alone(body: bytes, places: Sequence[int]) -> Sequence[bytes] | None:
    """These messages of an array, each as a record of its own."""
    if not _is_array(body):
        return None
    raws: list[msgspec.Raw] = read_json(_array, body)
    return [bytes(raws[place]) for place in places]


def _is_array(body: bytes) -> bool:
    return body.lstrip(b" \t\r\n").startswith(b"[")


def _identified(draft: Draft, origin: str | None, index: int) -> Draft:
    if draft.id is None:
        draft.id = derived_id(origin, index)
    return draft
