"""The splitter of arrays agrees with a JSON parser, wherever the pieces are cut."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from penstock.api.http.split import MARKS, PAUSE, Array, Block, Item, Lines, Splitter
from penstock.model.draft import decode_draft
from penstock.model.errors import PenstockError, TooLarge

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
LIMIT = 1 << 20


def split(splitter: Splitter, data: bytes, size: int) -> list[Item]:
    items: list[Item] = []
    for start in range(0, len(data), size):
        items += splitter.feed(data[start : start + size])
    return [*items, *splitter.end()]


def read(items: list[Item]) -> list[object]:
    """The values that were cut; of those read at once only {} can be in `values`."""
    found: list[object] = []
    for item in items:
        if isinstance(item, Block):
            found += [{} for _ in item.drafts]
        else:
            found.append(json.loads(item) if isinstance(item, bytes) else item)
    return found


def messages(items: list[Item]) -> list[tuple[object, object]]:
    """(id, payload) of every message, whichever way it was read; None where it was refused."""
    found: list[tuple[object, object]] = []
    for item in items:
        if isinstance(item, PenstockError):
            found.append((None, None))
            continue
        try:
            drafts = item.drafts if isinstance(item, Block) else [decode_draft(item)]
        except PenstockError:
            found.append((None, None))
            continue
        found += [
            (draft.id, None if draft.payload is UNSET else json.loads(bytes(draft.payload)))
            for draft in drafts
        ]
    return found


@given(
    st.lists(st.tuples(st.integers(0, 99).map(str) | st.none(), values), max_size=30),
    st.integers(1, 300),
    st.booleans(),
)
def test_messages_good_and_bad_come_out_in_order_wherever_they_are_cut(
    given_items: list[tuple[str | None, object]], size: int, lines: bool
) -> None:
    # An id of None stands for an item that is no message: it comes out refused, in its place.
    items = [
        value if name is None else {"id": name, "payload": value} for name, value in given_items
    ]
    expected = [
        (None, None) if name is None and value != {} else (name, None if name is None else value)
        for name, value in given_items
    ]
    text = "\n".join(json.dumps(item) for item in items) if lines else json.dumps(items)
    splitter: Splitter = Lines(LIMIT) if lines else Array(LIMIT)
    assert messages(split(splitter, text.encode(), size)) == expected


@given(st.lists(values, max_size=8), st.integers(1, 40), st.sampled_from([None, 1, "\t"]))
def test_an_array_is_cut_into_its_elements(
    array: list[object], size: int, indent: int | str | None
) -> None:
    data = json.dumps(array, indent=indent, ensure_ascii=False).encode()
    assert read(split(Array(LIMIT), data, size)) == array


@given(st.lists(values, max_size=8), st.integers(1, 40))
def test_lines_are_cut_into_lines(array: list[object], size: int) -> None:
    data = "\n".join(json.dumps(value) for value in array).encode()
    assert read(split(Lines(LIMIT), data, size)) == array


@given(st.binary(max_size=60) | st.text(alphabet='[]{},:" \\ab1', max_size=60), st.integers(1, 9))
def test_any_bytes_end_in_items_that_are_errors_or_hold_together(
    data: bytes | str, size: int
) -> None:
    raw = data.encode() if isinstance(data, str) else data
    whole = split(Array(LIMIT), raw, size)
    errors = [item for item in whole if isinstance(item, PenstockError)]
    assert len(errors) <= 1
    try:
        parsed = json.loads(raw)
    except ValueError:
        return  # every item that came out is judged by itself
    if isinstance(parsed, list):
        assert read(whole) == parsed
    else:
        assert len(errors) == 1


@given(st.integers(1, 50))
def test_an_element_past_the_limit_is_one_error_in_its_place(size: int) -> None:
    data = b'[{"a":1},{"b":"' + b"x" * 300 + b'"},{"c":[' + b"1," * 300 + b'1]},{"d":2}]'
    first, *between, last = split(Array(100), data, size)
    assert (first, last) == (b'{"a":1}', b'{"d":2}')
    assert [type(item) for item in between] == [TooLarge, TooLarge]


def test_what_is_kept_of_a_long_stream_stays_small() -> None:
    splitter = Array(1000)
    list(splitter.feed(b"["))
    for _ in range(1000):
        list(splitter.feed(b'{"payload":"' + b"x" * 500 + b'"},'))
        assert len(splitter._buffer) < 2000
    assert [type(item) for item in splitter.feed(b'{"x":"' + b"y" * 100_000)] == []
    assert len(splitter._buffer) < 2000


def test_others_have_their_turn_while_brackets_are_counted() -> None:
    inside = b"[" + b"[]," * 20_000 + b"[]]"
    items = split(Array(LIMIT), b"[" + inside + b"," + inside + b"]", 4_096)
    assert items.count(PAUSE) >= 4 * 20_000 // MARKS
    assert [each for each in items if each is not PAUSE] == [inside, inside]
