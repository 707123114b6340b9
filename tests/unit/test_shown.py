"""A message as it is shown: what was decided of it, here and through a client."""

from __future__ import annotations

import msgspec
import pytest

from penstock.cli import show
from penstock.model.decision import reason_of, verdict_of
from penstock.model.message import Message
from penstock.model.state import State
from penstock.model.verdict import Decided, Verdict
from penstock.model.view import MessageOut, message_of, message_out

BLOCKED = Decided(Verdict.BLOCK, "expires", "expired at 2026-01-01T00:00:00.000Z")
DEFERRED = Decided(Verdict.DEFER, "nights", "quiet until 08:00", until=9_000)


def message(decided: Decided | None, **fields: object) -> Message:
    known = {"id": "n-1", "route": "push", "key": "u1", "payload": b'{"x":1}', "due": 9_000}
    return Message(**{**known, "decided": decided, **fields})  # type: ignore[arg-type] # by name


def through_a_client(shown: Message) -> Message:
    wire = msgspec.json.encode(message_out(shown))
    return message_of(msgspec.json.decode(wire, type=MessageOut))


@pytest.mark.parametrize("remote", [False, True])
def test_a_blocked_message_shows_the_verdict_and_its_reason(
    remote: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    held = message(BLOCKED, state=State.BLOCKED)
    show.message(through_a_client(held) if remote else held, [])
    said = " ".join(capsys.readouterr().out.split())
    assert "decided BLOCK by expires: expired at 2026-01-01T00:00:00.000Z" in said


def test_a_deferred_message_shows_until_when_it_was_put_off_and_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show.message(through_a_client(message(DEFERRED)), [])
    assert "DEFER by nights: quiet until 08:00" in capsys.readouterr().out


def test_a_client_sees_the_verdict_and_the_reason_that_the_server_saw() -> None:
    for held in (message(BLOCKED, state=State.BLOCKED), message(DEFERRED), message(None)):
        again = through_a_client(held)
        assert (verdict_of(again), reason_of(again)) == (verdict_of(held), reason_of(held))


def test_a_message_that_went_out_shows_no_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    show.message(message(DEFERRED, attempt=1, claimed=9_001, state=State.DELIVERED), [])
    assert "decided" not in capsys.readouterr().out


def test_what_its_sender_blocked_shows_block(capsys: pytest.CaptureFixture[str]) -> None:
    show.message(message(None, state=State.BLOCKED, last_error="by the sender's decision"), [])
    said = capsys.readouterr().out
    assert "decided       BLOCK\n" in said
    assert "by the sender's decision" in said
