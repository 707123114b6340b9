"""Formats: what a broker's record means, and that no record can be worse than refused."""

from __future__ import annotations

import base64
import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contrib import SYSTEMS
from penstock.model.draft import MAX_KEYS, BlockedDraft, Draft, check_draft
from penstock.model.errors import InvalidMessage, Malformed, PenstockError
from penstock.model.identity import IdMaker
from penstock.model.message import NewMessage
from penstock.model.times import format_moment
from penstock.wiring.contrib import format_named

NOW = 1_893_456_000_000
"""2030-01-01T00:00:00Z"""
ORIGIN = "orders:3:17"


FORMATS = ["message", *(name for system in SYSTEMS.values() for name in system.formats)]


def read(name: str, value: object, origin: str | None = ORIGIN) -> list[Draft | PenstockError]:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return list(format_named(name).read(body, origin, NOW))


def messages(name: str, value: object, origin: str | None = ORIGIN) -> list[NewMessage]:
    drafts = read(name, value, origin)
    return [check_draft(d, NOW, IdMaker(Random())) for d in drafts if isinstance(d, Draft)]


def item(**fields: Any) -> dict[str, Any]:
    params = {"type": "promo", "receivers": ["user-1"], "templateName": "t", **fields.pop("p", {})}
    return {"id": "n-1", "name": "sale", "data": {"method": "sendPush", "params": params}, **fields}


def batch(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"decision": "ALLOW", "notify_msg": list(items or (item(),)), **fields}


@pytest.mark.parametrize("name", FORMATS)
@given(body=st.binary(max_size=200))
def test_bytes_that_are_not_the_format_are_refused_and_nothing_worse(
    name: str, body: bytes
) -> None:
    try:
        found = format_named(name).read(body, ORIGIN, NOW)
    except PenstockError:
        return
    assert all(isinstance(one, Draft | PenstockError) for one in found)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner),
    max_leaves=10,
)
_names = st.sampled_from(
    [
        *("id", "key", "at", "payload", "decision", "tta", "notify_msg", "event_id", "execute_at"),
        *("topic", "phone_number", "message", "data", "expires", "labels", "priority"),
    ]
)


@pytest.mark.parametrize("name", FORMATS)
@given(value=st.dictionaries(_names, _json, max_size=6))
def test_any_json_is_read_or_refused(name: str, value: dict[str, object]) -> None:
    try:
        found = read(name, value)
    except PenstockError:
        return
    for one in found:
        if isinstance(one, Draft):
            try:
                check_draft(one, NOW, IdMaker(Random()))
            except PenstockError as exc:
                assert exc.message


def test_a_message_is_the_json_of_the_api() -> None:
    (got,) = messages("message", {"id": "a", "payload": {"x": 1}, "delay": "2s", "key": "k"})
    assert (got.id, got.key, got.payload, got.due) == ("a", "k", b'{"x": 1}', NOW + 2000)


def test_a_message_without_an_id_gets_the_same_one_at_every_redelivery() -> None:
    first, again = messages("message", {"payload": 1}), messages("message", {"payload": 1})
    assert first[0].id == again[0].id == "orders:3:17:0"


def test_without_an_origin_every_message_is_its_own() -> None:
    first = messages("message", {"payload": 1}, origin=None)
    again = messages("message", {"payload": 1}, origin=None)
    assert first[0].id != again[0].id


def test_an_array_holds_messages_with_ids_of_their_own_and_the_good_ones_are_kept() -> None:
    found = read("message", [{"payload": 1}, {"payload": 2, "nonsense": 3}, {"payload": 4}])
    assert [type(one).__name__ for one in found] == ["Draft", "InvalidMessage", "Draft"]
    assert [d.id for d in found if isinstance(d, Draft)] == ["orders:3:17:0", "orders:3:17:2"]


@given(payload=st.binary(max_size=300), at=st.integers(NOW // 1000, NOW // 1000 + 10**8))
def test_a_schedule_event_says_when_what_and_where(payload: bytes, at: int) -> None:
    event = {
        "event_id": "e1",
        "execute_at": at,
        "payload": base64.b64encode(payload).decode(),
        "topic": "orders.eu",
    }
    (got,) = messages("schedule-event", event)
    assert (got.id, got.due, got.payload, got.topic) == ("e1", at * 1000, payload, "orders.eu")


@pytest.mark.parametrize("name", ["event_id", "id"])
def test_a_schedule_event_may_call_its_id_by_either_name(name: str) -> None:
    (got,) = messages("schedule-event", {name: "e1", "execute_at": 1_893_456_000})
    assert got.id == "e1"


def test_a_schedule_event_with_two_ids_is_refused() -> None:
    two = {"event_id": "e1", "id": "e2", "execute_at": 1_893_456_000}
    with pytest.raises(InvalidMessage, match="event_id: differs from id"):
        messages("schedule-event", two)


def test_an_sms_is_about_its_number_and_goes_on_as_it_came() -> None:
    body = b'{"phone_number": "+4915112345", "message":"hello"}'
    (got,) = messages("sms", body)
    assert (got.key, got.payload, got.due) == ("+4915112345", body, NOW)


def test_allow_is_due_now() -> None:
    (got,) = messages("decision-batch", batch(tta=0))
    assert (got.id, got.key, got.due, got.blocked) == ("n-1", "user-1", NOW, None)
    assert got.labels is not None
    assert (got.labels.channel, got.labels.campaign, got.labels.class_) == ("push", "sale", "promo")


def test_defer_is_due_at_tta() -> None:
    (got,) = messages("decision-batch", batch(decision="DEFER", tta=NOW // 1000 + 90))
    assert got.due == NOW + 90_000


def test_a_tta_that_is_past_means_now() -> None:
    (got,) = messages("decision-batch", batch(decision="DEFER", tta=NOW // 1000 - 90))
    assert got.due == NOW


def test_block_is_recorded_with_a_reason() -> None:
    (got,) = messages("decision-batch", batch(decision="BLOCK"))
    assert got.blocked == "blocked by the sender's decision"


@pytest.mark.parametrize("verdict", ["MAYBE", "allow", "", "ALLOW "])
def test_an_unknown_verdict_refuses_the_record(verdict: str) -> None:
    with pytest.raises(InvalidMessage, match="decision"):
        read("decision-batch", batch(decision=verdict))


@pytest.mark.parametrize("verdict", [7, {"a": 1}, True])
def test_a_verdict_that_is_no_word_refuses_the_record(verdict: object) -> None:
    with pytest.raises(InvalidMessage, match="decision"):
        read("decision-batch", batch(decision=verdict))


def test_without_a_verdict_our_own_policies_decide_when_it_is_due_now() -> None:
    (got,) = messages("decision-batch", {"notify_msg": [item()]})
    assert (got.due, got.blocked) == (NOW, None)


def test_defer_must_say_until_when() -> None:
    with pytest.raises(InvalidMessage, match="tta"):
        read("decision-batch", batch(decision="DEFER"))


def test_what_is_kept_has_the_same_shape_and_one_notification() -> None:
    first, second = item(), item(id="n-2")
    got = messages("decision-batch", batch(first, second, decision="DEFER", tta=NOW // 1000 + 5))
    shape = {"decision": "DEFER", "tta": NOW // 1000 + 5}
    assert [json.loads(m.payload) for m in got] == [
        {**shape, "notify_msg": [first]},
        {**shape, "notify_msg": [second]},
    ]


def test_what_goes_on_can_be_read_as_a_batch_again_with_the_same_ids() -> None:
    got = messages("decision-batch", batch(item(), item(id="n-2")))
    again = [messages("decision-items", m.payload)[0] for m in got]
    assert [m.id for m in again] == [m.id for m in got]
    assert [json.loads(m.payload) for m in again] == [item(), item(id="n-2")]


@pytest.mark.parametrize(
    "expires",
    [
        NOW // 1000 + 60,
        NOW + 60_000,
        format_moment(NOW + 60_000),
        "2030-01-01T00:01:00",
        "2030-01-01 00:01:00",
        "2030-01-01T01:01:00+01:00",
        str(NOW // 1000 + 60),
    ],
)
def test_the_expire_date_is_understood_however_it_is_written(expires: object) -> None:
    (got,) = messages("decision-batch", batch(item(p={"expireDate": expires})))
    assert got.expires == NOW + 60_000


def test_what_is_allowed_and_has_expired_is_recorded_and_not_sent() -> None:
    past = item(p={"expireDate": NOW // 1000 - 10})
    (got,) = read("decision-batch", batch(past, tta=NOW // 1000 + 20))
    assert isinstance(got, BlockedDraft)
    assert got.blocked.startswith("expired")


def test_what_is_put_off_beyond_its_expiry_is_held_until_then() -> None:
    late = item(p={"expireDate": NOW // 1000 + 10})
    (got,) = messages("decision-batch", batch(late, decision="DEFER", tta=NOW // 1000 + 20))
    assert (got.due, got.expires, got.blocked) == (NOW + 20_000, NOW + 10_000, None)


@pytest.mark.parametrize("verdict", ["ALLOW", "DEFER", "BLOCK", None])
def test_what_is_kept_tells_the_verdict_it_came_with(verdict: str | None) -> None:
    (got,) = messages("decision-batch", batch(decision=verdict, tta=NOW // 1000))
    assert json.loads(got.payload)["decision"] == verdict


def test_an_item_without_an_id_gets_the_records_origin_and_its_place() -> None:
    got = messages("decision-batch", batch(item(id=None), item(id=""), item(id=42)))
    assert [m.id for m in got] == ["orders:3:17:0", "orders:3:17:1", "42"]


@pytest.mark.parametrize(
    ("receivers", "key"),
    [
        (["u1", "u2"], "u1"),
        ([{}, "u2"], "u2"),
        ("u1", "u1"),
        ([7], "7"),
        ([{"id": "u9"}], "u9"),
        ([], "n-1"),
        (None, "n-1"),
        ([{}], "n-1"),
        (["\n"], "n-1"),
    ],
)
def test_the_key_is_the_receiver(receivers: object, key: str) -> None:
    (got,) = messages("decision-batch", batch(item(p={"receivers": receivers})))
    assert got.key == key


@pytest.mark.parametrize(
    ("given_priority", "priority"),
    [(9, 9), (0, 0), (99, 9), (-3, 0), ("HIGH", 8), ("7", 7), (None, 5), ("odd", 5), ([], 5)],
)
def test_a_priority_is_brought_into_range(given_priority: object, priority: int) -> None:
    (got,) = messages("decision-batch", batch(item(priority=given_priority)))
    assert got.priority == priority


def test_a_thousand_are_taken_and_one_more_is_refused() -> None:
    many = [item(id=f"n-{n}") for n in range(1001)]
    assert len(messages("decision-batch", batch(*many[:1000]))) == 1000
    with pytest.raises(InvalidMessage, match="1,001 items"):
        read("decision-batch", batch(*many))


def test_one_bad_item_does_not_spoil_the_others() -> None:
    found = read("decision-batch", batch(item(), item(data="no"), item(id="n-3")))
    assert [type(one).__name__ for one in found] == ["Draft", "InvalidMessage", "Draft"]
    assert isinstance(found[1], InvalidMessage)
    assert found[1].field == "notify_msg[1]"


def test_what_is_not_json_is_malformed() -> None:
    with pytest.raises(Malformed):
        read("decision-batch", b"{")


@pytest.mark.parametrize(
    ("receivers", "keys"),
    [
        (["u1", "u2", 3, {"id": "u4"}], ("u2", "3", "u4")),
        (["u1", "u1", "u2", "u2"], ("u2",)),
        (["u1", "\n", None, True, {}], ()),
        ("u1", ()),
    ],
)
def test_further_receivers_are_further_keys(receivers: object, keys: tuple[str, ...]) -> None:
    (got,) = messages("decision-batch", batch(item(p={"receivers": receivers})))
    assert got.key == "u1"
    assert got.labels is not None
    assert got.labels.keys == keys


def test_a_notification_with_too_many_receivers_is_refused_alone() -> None:
    many = item(p={"receivers": [f"u{n}" for n in range(MAX_KEYS + 2)]})
    fit = item(id="n-2", p={"receivers": [f"u{n}" for n in range(MAX_KEYS + 1)]})
    with pytest.raises(InvalidMessage, match=r"labels\.keys"):
        messages("decision-batch", batch(many))
    (got,) = messages("decision-batch", batch(fit))
    assert got.labels is not None
    assert len(got.labels.keys) == MAX_KEYS


def test_drop_is_block() -> None:
    (got,) = messages("decision-batch", batch(decision="DROP"))
    assert got.blocked == "blocked by the sender's decision"


def test_other_fields_of_a_batch_stay_with_each_notification() -> None:
    more = {"process": {"name": "spring", "n": 1.5}, "order": 7}
    first, second = messages("decision-batch", batch(item(), item(id="n-2"), tta=9, **more))
    assert json.loads(first.payload) == batch(item(), tta=9, **more)
    assert json.loads(second.payload) == batch(item(id="n-2"), tta=9, **more)
    apart = format_named("decision-batch").alone
    assert apart is not None
    (alone,) = apart(json.dumps(batch(item(), **more)).encode(), [0]) or ()
    assert json.loads(alone) == batch(item(), **more)
    (bare,) = messages("decision-items", batch(item(), **more))
    assert json.loads(bare.payload) == item()


def test_a_method_chooses_the_route() -> None:
    routes = {"sendPush": "push", "SENDEMAIL": "mail"}
    methods = ["sendPush", "sendEmail", "sendSms", None, 7]
    items = [item(id=f"n-{n}", data={"method": m, "params": {}}) for n, m in enumerate(methods)]
    body = json.dumps(batch(*items)).encode()
    found = format_named("decision-batch").reader(routes)(body, None, NOW)
    chosen = [draft.route for draft in found if isinstance(draft, Draft)]
    assert chosen == ["push", "mail", "default", "default", "default"]
    items_alone = format_named("decision-items")
    assert items_alone.reader({}) is items_alone.read
