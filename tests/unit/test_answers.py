"""What another side says is read with care."""

import pytest

from penstock.model.answers import MAX_SAID, Scrubber, retry_after, storable

NOW = 1_700_000_000.0  # 2023-11-14T22:13:20Z


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        (" 7 ", 7.0),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        ("0", None),
        ("Tue, 14 Nov 2023 22:13:10 GMT", None),  # past
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        (None, None),
        ("9" * 5000, None),
        ("٣", None),
        ("Tue, 99 Nov 2023 22:13:50 GMT", None),
        ("Tue, 14 Nov 2023 22:13:50 -0000", None),
        ("inf", None),
        ("nan", None),
    ],
)
def test_retry_after_is_honoured_and_nonsense_is_not(
    text: str | None, seconds: float | None
) -> None:
    assert retry_after(text, NOW) == seconds


def test_a_foreign_text_becomes_one_short_plain_line() -> None:
    said = Scrubber(())("a\r\n\tb\x00\x1b[31mc\u202ed" + "x" * 500)
    assert said.startswith("a b [31mc d")
    assert len(said) == MAX_SAID
    assert said.isprintable()


def test_secrets_are_blotted_out_the_longest_first() -> None:
    assert (
        Scrubber(["password", "password-long", ""])("my password-long, password") == "my ***, ***"
    )


def test_a_secret_at_the_edge_is_not_cut_into_view() -> None:
    said = Scrubber(["s3cr3t-s3cr3t"])("x" * (MAX_SAID - 5) + "s3cr3t-s3cr3t")
    assert "s3" not in said


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Zürich 🚰", "Zürich 🚰"),
        ("two\nlines", "two\nlines"),
        ("half \ud83d", r"half \ud83d"),
        ("nul\x00", r"nul\x00"),
        ("x" * 30, "x" * 20),
    ],
)
def test_a_text_becomes_one_that_every_store_takes(text: str, kept: str) -> None:
    assert storable(text, 20) == kept
