"""What a message carries: layers of headers, the later winning."""

import pytest

from penstock.model.envelope import Envelope
from penstock.model.errors import InvalidMessage
from penstock.model.message import Message
from penstock.sinks.log import lateness


def held(**changes: object) -> Message:
    fields: dict[str, object] = {"id": "m", "route": "r", "key": "k", "payload": b"1"}
    fields |= {"due": 1_700_000_000_007, "attempt": 2}
    return Message(**{**fields, **changes})  # type: ignore[arg-type]


def test_penstock_says_id_attempt_due_and_type() -> None:
    assert Envelope({}).headers(held()) == {
        "content-type": "application/json",
        "penstock-id": "m",
        "penstock-attempt": "2",
        "penstock-due": "2023-11-14T22:13:20.007Z",
    }


@pytest.mark.parametrize("fixed", [{}, {"X-Route": "ü"}])
@pytest.mark.parametrize("own", [None, {"x-trace": "1", "Content-Type": "text/csv"}])
def test_headers_of_bytes_are_the_same_ones(
    fixed: dict[str, str], own: dict[str, str] | None
) -> None:
    envelope, message = Envelope(fixed), held(headers=own)
    same = [(name, value.encode()) for name, value in envelope.headers(message).items()]
    assert envelope.pairs(message) == same


def test_a_callers_header_keeps_its_spelling() -> None:
    assert Envelope({}).headers(held(headers={"X-Trace": "1"}))["X-Trace"] == "1"


def test_the_routes_header_wins_over_the_callers_in_any_case() -> None:
    carried = Envelope({"Authorization": "ours"}).headers(held(headers={"authorization": "theirs"}))
    assert carried["Authorization"] == "ours"
    assert "authorization" not in carried


def test_a_callers_content_type_wins_over_the_default_and_the_routes_over_both() -> None:
    message = held(headers={"Content-Type": "text/csv"})
    assert Envelope({}).headers(message)["content-type"] == "text/csv"
    assert Envelope({"Content-type": "a/b"}).headers(message)["content-type"] == "a/b"
    assert "Content-Type" not in Envelope({}).headers(message)


@pytest.mark.parametrize("bad", [{"penstock-id": "x"}, {"a b": "x"}, {"a": "x\r\ny: z"}])
def test_fixed_headers_that_cannot_be_sent_are_refused(bad: dict[str, str]) -> None:
    with pytest.raises(InvalidMessage):
        Envelope(bad)


def test_a_receiver_in_the_program_sees_the_routes_headers_among_the_messages() -> None:
    message = held(headers={"X-A": "mine", "b": "2"})
    (changed,) = Envelope({"x-a": "ours"}).all_with_fixed([message])
    assert changed.headers == {"x-a": "ours", "b": "2"}
    assert Envelope({}).all_with_fixed([message]) == [message]


def test_lateness_is_by_the_stores_clock() -> None:
    assert lateness(held(claimed=1_700_000_000_010)) == 3
    assert lateness(held()) is None
