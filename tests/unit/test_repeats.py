"""Repeated warnings are thinned out by the records' own time."""

import logging

from penstock.telemetry.logs import MAX_KNOWN, Repeats, Text, _Held


def record(text: str, at: float, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.makeLogRecord(
        {"name": "penstock.x", "levelno": level, "msg": text, "created": 1000.0 + at}
    )


def written(repeats: Repeats, *records: logging.LogRecord) -> list[str]:
    return [each.getMessage() for one in records for each in repeats.admit(one)]


def test_the_first_is_written_and_repeats_are_told_after_the_window() -> None:
    repeats = Repeats(window=10)
    assert written(repeats, *(record("away", n) for n in (0, 1, 2.5))) == ["away"]
    assert written(repeats, record("away", 11)) == ["away (again, 2 times in 2.5 s)", "away"]


def test_any_later_line_lets_the_count_out() -> None:
    repeats = Repeats(window=10)
    written(repeats, record("away", 0), record("away", 1))
    told = written(repeats, record("hello", 20, logging.INFO))
    assert told == ["away (again, 1 times in 1.0 s)", "hello"]


def test_different_texts_and_mere_information_pass() -> None:
    repeats = Repeats(window=10)
    assert written(repeats, record("a", 0), record("b", 0)) == ["a", "b"]
    same = [record("i", 0, logging.INFO)] * 3
    assert written(repeats, *same) == ["i"] * 3


def test_a_warning_that_names_another_example_is_a_repeat() -> None:
    repeats = Repeats(window=10)
    like = [record(f"500, such as m{n}", n) for n in (0, 1, 12)]
    for one in like:
        one.same = "500"
    told = ["500, such as m0", "500, such as m1 (again, 1 times in 1.0 s)", "500, such as m12"]
    assert written(repeats, *like) == told
    assert not any("same" in vars(one) for one in like)


def test_a_warning_that_was_not_repeated_leaves_no_count() -> None:
    repeats = Repeats(window=10)
    assert written(repeats, record("a", 0), record("a", 10)) == ["a", "a"]
    assert repeats.flush() == []


def test_a_clock_that_goes_back_does_not_silence() -> None:
    repeats = Repeats(window=10)
    assert written(repeats, record("a", 0), record("a", -3600)) == ["a", "a"]


def test_only_so_many_are_kept_in_mind() -> None:
    repeats = Repeats(window=10)
    for number in range(MAX_KNOWN * 2):
        repeats.admit(record(f"text {number}", 0))
    assert written(repeats, record("text 0", 0)) == ["text 0"]


def test_a_text_with_percent_signs_is_told_as_it_is() -> None:
    repeats = Repeats(window=10)
    written(repeats, record("100 %s %d", 0), record("100 %s %d", 1))
    (told,) = repeats.flush()
    assert told.getMessage() == "100 %s %d (again, 1 times in 1.0 s)"


def test_a_line_that_is_logged_while_another_expires_does_no_harm() -> None:
    """As a finalizer does that the interpreter happens to run in between."""
    repeats = Repeats(window=10)

    class Interrupted(dict[Text, _Held]):
        def pop(self, text: Text, default: _Held | None = None) -> _Held | None:  # type: ignore[override] # as it is used
            if not interrupted:
                interrupted.append(True)
                inner.extend(written(repeats, record("meanwhile", 30)))
            return super().pop(text, default)

    interrupted: list[bool] = []
    inner: list[str] = []
    written(repeats, record("away", 0), record("away", 1))
    repeats.known = Interrupted(repeats.known)
    told = written(repeats, record("later", 30))
    assert sorted(inner + told) == ["away (again, 1 times in 1.0 s)", "later", "meanwhile"]
