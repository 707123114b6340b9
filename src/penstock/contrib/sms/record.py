"""sms — `{"phone_number", "message"}`: due now, keyed by the number, sent on unchanged."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.flow.formats import Format
from penstock.flow.formats.wire import derived_id
from penstock.model.draft import Draft
from penstock.model.errors import PenstockError
from penstock.model.wire import read_json


class SmsRecord(msgspec.Struct, frozen=True):
    phone_number: str
    message: str


_sms = msgspec.json.Decoder(SmsRecord)


def read(body: bytes, origin: str | None, _now: int) -> Sequence[Draft | PenstockError]:
    sms = read_json(_sms, body)
    return [Draft(id=derived_id(origin, 0), key=sms.phone_number, payload=msgspec.Raw(body))]


SMS = Format(read)
