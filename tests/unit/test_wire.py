"""What is wrong with a piece of JSON is said in the words of those who wrote it."""

from __future__ import annotations

import msgspec
import pytest

from penstock.api.http.shapes import decode_bulk
from penstock.model.draft import decode_draft
from penstock.model.errors import InvalidMessage, Malformed
from penstock.model.policy import decode_policy, policy_from
from penstock.model.wire import wire_error


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        (b'{"rout": "a"}', "rout", "no such field; did you mean route?"),
        (b'{"labels": {"colour": "a"}}', "labels.colour", "known: channel, campaign, class"),
        (b'{"labels": {"chanel": "a"}}', "labels.chanel", "did you mean channel?"),
        (b'{"on_conflict": "x"}', "on_conflict", "one of keep, replace, earliest, not 'x'"),
        (b'{"priority": "high"}', "priority", "must be a whole number, not text"),
        (b'{"delay": []}', "delay", "must be a number or text, not a list"),
        (b'{"route": null}', "route", "must be text, not null"),
        (b'{"headers": {"a": 1}}', "headers", "each value must be text, not a whole number"),
        (b'{"labels": {"tags": [1]}}', "labels.tags[0]", "must be text"),
        (b"[]", "body", "must be an object, not a list"),
    ],
)
def test_a_wrong_message_is_told_its_field_and_what_would_be_right(
    body: bytes, field: str, words: str
) -> None:
    with pytest.raises(InvalidMessage) as caught:
        decode_draft(body)
    assert caught.value.field == field
    assert words in caught.value.reason


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        (b'{"kind": "cup"}', "kind", "must be one of cap, quiet, pace, not 'cup'"),
        (b"{}", "kind", "is required"),
        (b'{"kind": "cap", "scope": ["kee"]}', "scope[0]", "one of key, channel"),
        (b'{"kind": "cap", "limits": 3}', "limits", "did you mean limit?"),
    ],
)
def test_a_wrong_policy_is_told_every_word_that_fits(body: bytes, field: str, words: str) -> None:
    for read in (decode_policy, lambda text: policy_from(msgspec.json.decode(text))):
        with pytest.raises(InvalidMessage) as caught:
            read(body)
        assert caught.value.field == field
        assert words in caught.value.reason


def test_a_wrong_filter_is_told_by_its_whole_path() -> None:
    with pytest.raises(InvalidMessage, match=r"filter\.kye: no such field; did you mean key\?"):
        decode_bulk(b'{"filter": {"kye": "a"}}')
    with pytest.raises(InvalidMessage, match=r"filter\.state: must be one of scheduled, leased"):
        decode_bulk(b'{"filter": {"state": "ded"}}')
    with pytest.raises(InvalidMessage, match="filter: is required"):
        decode_bulk(b"{}")


def test_text_that_is_not_utf_8_is_malformed_wherever_it_stands() -> None:
    for read, body in (
        (decode_policy, b'{"kind": "quiet", "from": "\xff"}'),
        (decode_draft, b'{"id": "\xff"}'),
    ):
        with pytest.raises(Malformed):
            read(body)


def test_without_a_shape_the_field_is_named_all_the_same() -> None:
    error = wire_error(msgspec.ValidationError("Object contains unknown field `a`"))
    assert isinstance(error, InvalidMessage)
    assert (error.field, error.reason) == ("a", "no such field")
