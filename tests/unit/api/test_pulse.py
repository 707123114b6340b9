"""The heads of answers are rendered once a beat, and are what `render` would have made."""

from __future__ import annotations

from penstock.api.http.answer import Answer
from penstock.api.http.connection import Pulse, render
from penstock.settings import ApiSettings


def test_a_plain_answer_is_what_render_makes_of_it() -> None:
    pulse = Pulse(ApiSettings())
    pulse.beat(1.0, [(b"date", b"today")])
    for answer in (Answer(201, b'{"id":"a"}'), Answer(202, b"{}"), Answer(201, b"0" * 2_000)):
        assert pulse.plain(answer) == render(answer, pulse.headers, keep_alive=True)


def test_a_new_date_is_told_from_the_next_beat_on() -> None:
    pulse = Pulse(ApiSettings())
    pulse.beat(1.0, [(b"date", b"today")])
    assert b"date: today\r\n" in pulse.plain(Answer(201, b"{}"))
    pulse.beat(2.0, [(b"date", b"tomorrow")])
    assert b"date: tomorrow\r\n" in pulse.plain(Answer(201, b"{}"))
