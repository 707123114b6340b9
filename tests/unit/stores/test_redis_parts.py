"""The parts of the Redis store that need no server."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.draft import MAX_ID, is_id
from penstock.model.errors import StoreCorrupt
from penstock.model.message import Labels, Message, NewMessage
from penstock.model.state import State
from penstock.model.times import MAX_TIME
from penstock.redis_kit.breaker import PROMPT, Breaker
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.keys import (
    DAY,
    HOUR,
    Bucket,
    Widths,
    bucket_entry,
    read_entry,
)
from penstock.stores.redis.messages.lease import PartitionDue, shares
from penstock.stores.redis.messages.put import by_place
from penstock.stores.redis.messages.records import (
    MAX_EVENTS,
    NO_NONCE,
    Held,
    NewPacker,
    add_events,
    joined_ids,
    pack,
    pack_event,
    pack_id,
    pack_ids,
    read,
    read_events,
    unpack,
    unpack_claimed,
    unpack_id,
)

PACKAGE = Path(str(files("penstock")))
STORE = PACKAGE / "stores" / "redis"
SCRIPTS = [
    path.relative_to(STORE).as_posix()
    for path in sorted(STORE.rglob("*.lua"))
    if not path.read_text().startswith("-- Shared by ")
]

ids = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=MAX_ID)
uuids = st.uuids().map(str)
nearly_uuids = st.builds(  # as long as one, but a character is not as it should be
    lambda text, at, odd: text[:at] + odd + text[at + 1 :],
    uuids,
    st.integers(0, 35),
    st.sampled_from("-gA f"),
)
moments = st.integers(0, MAX_TIME)
texts = st.text(min_size=1, max_size=20)
headers = st.none() | st.dictionaries(texts, texts, min_size=1, max_size=3)
labels = st.none() | st.builds(Labels, channel=st.none() | texts, tags=st.tuples(texts))


@given(ids | uuids | nearly_uuids, ids | uuids | nearly_uuids)
def test_an_id_comes_back_and_no_two_are_one(one: str, other: str) -> None:
    assert is_id(unpack_id(pack_id(one)))
    assert unpack_id(pack_id(one)) == one
    assert (pack_id(one) == pack_id(other)) == (one == other)


@given(st.lists(uuids | nearly_uuids | ids) | st.lists(uuids))
def test_many_ids_are_packed_as_each_of_them_is(texts: list[str]) -> None:
    members = [pack_id(text) for text in texts]
    assert pack_ids(texts) == members
    joined, lengths = joined_ids(texts)
    assert joined == b"".join(members)
    assert ([lengths] * len(texts) if isinstance(lengths, int) else lengths) == [*map(len, members)]


def test_a_short_id_and_a_long_one_are_not_taken_for_two_uuids() -> None:
    both = f"{UUID(int=1)}{UUID(int=2)}"
    assert joined_ids([both[:35], both[35:]]) == (both.encode(), [35, 37])


@given(st.tuples(ids, ids) | st.tuples(uuids, uuids))
def test_packed_ids_of_one_kind_are_in_the_order_of_the_texts(pair: tuple[str, str]) -> None:
    one, other = pair
    if (len(pack_id(one)) == 16) == (len(pack_id(other)) == 16):
        assert (pack_id(one) < pack_id(other)) == (one < other)


@given(
    message_id=ids | uuids,
    key=st.none() | texts,
    payload=st.binary(max_size=300),
    due=moments,
    now=moments,
    headers=headers,
    labels=labels,
    expires=st.none() | moments,
    priority=st.integers(0, 9),
    content_type=st.sampled_from(["application/json", "text/plain"]),
    topic=st.none() | texts,
)
def test_what_is_put_is_what_is_read(
    message_id: str,
    key: str | None,
    payload: bytes,
    due: int,
    now: int,
    headers: dict[str, str] | None,
    labels: Labels | None,
    expires: int | None,
    priority: int,
    content_type: str,
    topic: str | None,
) -> None:
    new = NewMessage(
        id=message_id,
        route="r",
        key=key or message_id,
        payload=payload,
        due=due,
        content_type=content_type,
        headers=headers,
        expires=expires,
        priority=priority,
        labels=labels,
        topic=topic,
    )
    packer = NewPacker(new.route, new.priority, now=now, generation=1, edition=7)
    member, record = pack_id(message_id), packer.pack([new])[0]
    message = unpack(member, Held(3, record, None))
    for name in NewMessage.__struct_fields__:
        if name not in ("on_conflict", "blocked", "dead"):
            assert getattr(message, name) == getattr(new, name), name
    assert (message.created, message.state, message.ref) == (now, State.SCHEDULED, 4)
    lease = b"thetoken" + (now + 1).to_bytes(6, "little") + b"\0"
    (claimed,) = unpack_claimed(3, lease, [member, record])
    assert claimed == unpack(member, Held(3, record, lease))
    assert (claimed.claimed, claimed.attempt, claimed.state) == (now + 1, 1, State.LEASED)


@given(
    state=st.sampled_from(sorted(set(State) - {State.LEASED})),
    version=st.integers(1, 2**24 - 1),
    attempt=st.integers(0, 65_535),
    claimed=st.none() | st.integers(1, MAX_TIME),
    settled=st.none() | st.integers(1, MAX_TIME),
    error=st.none() | texts,
    number=st.integers(0, 2 * MAX_EVENTS),
)
def test_a_changed_message_is_read_as_it_was_written(
    state: State,
    version: int,
    attempt: int,
    claimed: int | None,
    settled: int | None,
    error: str | None,
    number: int,
) -> None:
    message = Message(
        id="x",
        route="r",
        key="k",
        payload=b"p",
        due=5,
        state=state,
        version=version,
        attempt=attempt,
        claimed=claimed,
        settled=settled,
        last_error=error,
        ref=1,
    )
    events = add_events(b"", *(pack_event(n, "retry", error, n) for n in range(number)))
    record = pack(message, generation=1, edition=2, nonce=NO_NONCE, events=events)
    again, kept = read(b"x", Held(0, record, None))
    assert again == message
    lines = read_events(kept)
    assert [line.at for line in lines] == list(range(number))[-MAX_EVENTS:]


def test_a_record_that_is_not_ours_is_told() -> None:
    with pytest.raises(StoreCorrupt, match="'x' cannot be read"):
        unpack(b"x", Held(0, b"nonsense", None))


aheads = st.integers(0, 3 * DAY) | st.builds(
    int.__add__,
    st.sampled_from([2 * width for width in (60_000, HOUR, DAY)]),
    st.integers(-2, 2) | st.integers(-HOUR, HOUR),
)


@given(
    now=st.integers(0, DAY),
    asked=st.lists(st.tuples(aheads, st.sampled_from("ab"), st.integers(0, 1), st.booleans())),
)
def test_many_are_sorted_into_the_places_that_each_belongs_to(
    now: int, asked: list[tuple[int, str, int, bool]]
) -> None:
    widths = Widths(60_000)
    messages = [
        NewMessage("m", route, "m", b"", now + ahead, priority=p, blocked="no" if no else None)
        for ahead, route, p, no in asked
    ]
    expected: dict[tuple[str, int, Bucket | None], list[int]] = {}
    for i, m in enumerate(messages):
        if m.blocked is None:
            place = m.route, m.priority, widths.bucket_for(m.due, now)
            expected.setdefault(place, []).append(i)
    found, blocked = by_place(messages, range(len(messages)), widths.steps(now))
    assert found == expected
    assert blocked == [i for i, m in enumerate(messages) if m.blocked is not None]


@given(due=moments, now=moments, narrowest=st.sampled_from([1_000, 60_000, 7_200_000]))
def test_a_bucket_holds_its_due_and_opens_into_narrower_ones(
    due: int, now: int, narrowest: int
) -> None:
    widths = Widths(narrowest)
    bucket = widths.bucket_for(due, now)
    if bucket is None:
        assert due - now < widths.near
        return
    assert bucket.start <= due < bucket.end
    assert read_entry(bucket, bucket_entry(bucket, due, b"id")) == (due, b"id")
    inside = widths.inside(bucket)
    assert (bucket.width == narrowest) == (not inside)
    if inside:
        assert sum(one.start <= due < one.end for one in inside) == 1
        assert len(inside) <= 3_600


def test_a_breaker_opens_after_failures_in_a_row_and_lets_one_call_try() -> None:
    now = [100.0]
    breaker = Breaker(clock=lambda: now[0])
    for _ in range(PROMPT.trip_after):
        assert breaker.wait() == 0
        assert 0 < breaker.failed() <= PROMPT.longest_open
    wait = breaker.wait()
    assert wait > 0
    now[0] += wait
    assert breaker.wait() == 0
    assert breaker.wait() > 0
    breaker.succeeded()
    assert breaker.wait() == 0


lanes = st.lists(
    st.lists(st.lists(st.integers(0, 30), max_size=4).map(sorted), min_size=10, max_size=10),
    min_size=1,
    max_size=5,
)


@given(lanes, st.integers(1, 12))
def test_a_claim_is_shared_out_by_priority_and_then_due(
    partitions: list[list[list[int]]], limit: int
) -> None:
    found = [PartitionDue([len(lane) for lane in lanes], lanes) for lanes in partitions]
    taken = shares(found, limit)
    everything = sorted(
        (lane, due) for lanes in partitions for lane, dues in enumerate(lanes) for due in dues
    )
    given_out = sorted(
        place
        for lanes, share in zip(partitions, taken, strict=True)
        for place in [(lane, due) for lane, dues in enumerate(lanes) for due in dues][:share]
    )
    assert given_out == everything[:limit]


def test_a_large_claim_leaves_no_partition_out() -> None:
    found = [
        PartitionDue([0] * 4 + [number] + [0] * 5, [[]] * 10) for number in (5_000, 10, 700, 0)
    ]
    assert shares(found, 1_500) == [790, 10, 700, 0]


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_says_what_it_takes_and_answers(name: str) -> None:
    text = (STORE / name).read_text()
    header = text[: text.index("\n\n")]
    assert re.match(r"-- [A-Z_]+( and [A-Z]+)?: \w", header)
    for part in ("-- KEYS ", "-- ARGV ", "-- → "):
        assert part in header
    assert not re.search(r"call\('(KEYS|SCAN|SMEMBERS|FLUSHALL|EVAL)", text)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_stands_beside_its_caller_and_finds_what_it_includes(name: str) -> None:
    path = f"stores/redis/{name}"
    callers = (STORE / name).parent.glob("*.py")
    assert any(f'Script("{path}")' in caller.read_text() for caller in callers)
    source = Script(path).source.decode()
    for included in re.findall(r"^-- @include (\S+)$", source, re.MULTILINE):
        first_line = (PACKAGE / included).read_text().partition("\n")[0]
        assert source.count(first_line) == 1
