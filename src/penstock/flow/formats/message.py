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
    if not body.lstrip(b" \t\r\n").startswith(b"["):
        return [_identified(decode_draft(body), origin, 0)]
    found: list[Draft | PenstockError] = []
    raws: list[msgspec.Raw] = read_json(_array, body)
    for index, raw in enumerate(raws):
        try:
            found.append(_identified(decode_draft(memoryview(raw)), origin, index))
        except PenstockError as exc:
            found.append(exc)
    return found


def _identified(draft: Draft, origin: str | None, index: int) -> Draft:
    if draft.id is None:
        draft.id = derived_id(origin, index)
    return draft
