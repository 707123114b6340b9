"""A draft becomes a message, or an error that names the field."""

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.draft import check_draft, decode_draft
from penstock.model.errors import InvalidMessage, Malformed, PenstockError, TooLarge, UnknownRoute
from penstock.model.identity import IdMaker, partition_of
from penstock.model.message import NewMessage

NOW = 1_900_000_000_000


def accept(body: str | bytes, **limits: int) -> NewMessage:
    raw = body.encode() if isinstance(body, str) else body
    return check_draft(decode_draft(raw), NOW, IdMaker(Random(1)), **limits)


def test_an_empty_object_is_a_message_due_now_on_the_default_route() -> None:
    message = accept("{}")
    assert (message.route, message.due, message.payload) == ("default", NOW, b"null")
    assert message.key == message.id


@pytest.mark.parametrize(
    "text", ['"a string"', "1.0", '{"a" : [1,2 ]}', "null", "true", '"\\u00e9"', "1e400"]
)
def test_the_payload_keeps_the_callers_own_bytes(text: str) -> None:
    assert accept(f'{{"payload": {text} }}').payload == text.encode()


def test_raw_bytes_come_as_base64_with_their_type() -> None:
    message = accept('{"payload_base64":"AAEC/w==","content_type":"image/x"}')
    assert (message.payload, message.content_type) == (b"\x00\x01\x02\xff", "image/x")


def test_a_moment_in_the_past_means_now() -> None:
    assert accept('{"at":"2001-01-01T00:00:00Z"}').due == NOW


def test_a_delay_counts_from_the_given_now_and_is_rounded_up() -> None:
    assert accept('{"delay":0.0011}').due == NOW + 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('{"id":""}', "id"),
        ('{"id":"a\\u0000b"}', "id"),
        ('{"id":"caf\\u00e9"}', "id"),
        ('{"id":"' + "x" * 201 + '"}', "id"),
        ('{"id":"' + "x" * 10_000_000 + '"}', "id"),
        ('{"id":7}', "id"),
        ('{"key":""}', "key"),
        ('{"key":"a\\nb"}', "key"),
        ('{"at":"2030-01-01T00:00:00"}', "at"),
        ('{"at":1893456000}', "at"),
        ('{"at":"2030-01-01T00:00:00Z","delay":5}', "delay"),
        ('{"delay":-1}', "delay"),
        ('{"delay":"soon"}', "delay"),
        ('{"delay":1e300}', "delay"),
        ('{"delay":true}', "delay"),
        ('{"expires":"2029-01-01T00:00:00Z","at":"2031-01-01T00:00:00Z"}', "expires"),
        ('{"priority":10}', "priority"),
        ('{"priority":-1}', "priority"),
        ('{"priority":"high"}', "priority"),
        ('{"priority":99999999999999999999999999}', "priority"),
        ('{"headers":{"a b":"c"}}', "headers"),
        ('{"headers":{"":"c"}}', "headers"),
        ('{"headers":{"penstock-id":"forged"}}', "headers"),
        ('{"headers":{"Webhook-Id":"forged"}}', "headers"),
        ('{"headers":{"a":"b\\r\\nc: d"}}', "headers.a"),
        ('{"headers":{"a":"' + "x" * 5000 + '"}}', "headers.a"),
        ('{"headers":{"a":1}}', "headers"),
        ('{"labels":{"tz":"Mars/Olympus"}}', "labels.tz"),
        ('{"labels":{"klass":"x"}}', "labels.klass"),
        ('{"labels":{"channel":""}}', "labels.channel"),
        ('{"on_conflict":"merge"}', "on_conflict"),
        ('{"payload_base64":"***"}', "payload_base64"),
        ('{"payload_base64":"AA==","payload":1}', "payload_base64"),
        ('{"content_type":"a\\nb"}', "content_type"),
        ('{"dealy":5}', "dealy"),
        ("[]", "body"),
        ('"text"', "body"),
    ],
)
def test_a_bad_field_is_named(body: str, field: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        accept(body)
    assert refused.value.field == field
    assert len(refused.value.message) < 500


@pytest.mark.parametrize(
    "body", ["", "{", '{"payload":', b"\xff\xfe", '{"priority":1}x', '{"payload":' + "[" * 100_000]
)
def test_what_is_not_json_is_malformed(body: str | bytes) -> None:
    with pytest.raises(Malformed):
        accept(body)


def test_a_payload_past_the_limit_is_too_large() -> None:
    assert accept('{"payload":"12345678"}', max_payload=10).payload == b'"12345678"'
    with pytest.raises(TooLarge):
        accept('{"payload":"123456789"}', max_payload=10)


@given(st.binary(max_size=200))
def test_garbage_never_raises_anything_but_our_own_errors(body: bytes) -> None:
    try:
        accept(body)
    except PenstockError as exc:
        assert exc.message


@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: st.one_of(
                st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(),
                st.lists(st.integers(), max_size=2), st.dictionaries(st.text(), st.text())
            )
            for name in (
                "id", "route", "key", "payload", "payload_base64", "content_type", "headers",
                "at", "delay", "expires", "priority", "labels", "topic", "on_conflict",
            )
        },
    )
)  # fmt: skip
def test_any_types_in_any_field_are_accepted_or_clearly_refused(body: dict[str, object]) -> None:
    try:
        message = accept(msgspec.json.encode(body))
    except PenstockError as exc:
        assert exc.message
        assert exc.field is not None
    else:
        assert message.due >= NOW


def test_made_ids_only_grow_and_look_like_uuid_7() -> None:
    ids = IdMaker(Random(1))
    made = [ids.make(NOW + i // 5000) for i in range(20_000)]
    assert made == sorted(set(made))
    assert {(text[14], len(text)) for text in made} == {("7", 36)}
    assert {text[19] for text in made} <= set("89ab")


def test_a_partition_does_not_depend_on_the_process() -> None:
    assert [partition_of(text, 8) for text in ("a", "user1234", "é")] == [3, 2, 6]


def test_an_unknown_route_is_told_which_there_are_and_how_many_more() -> None:
    names = tuple(f"r{number:02}" for number in range(12))
    assert UnknownRoute("x", names[:2]).message.endswith("known here: r00, r01")
    assert UnknownRoute("x", names).message.endswith("r08, r09 and 2 more")
