"""Room history: what every line was, look by look, unknown where nothing was seen."""

from __future__ import annotations

from penstock.model.room import Room, RoomFigures, RoomSettings, RoomState
from penstock.model.times import format_moment
from penstock.rooms.history import LENGTH, MOST, STEP, RoomHistory

NOW = 1_900_000_000_000
LOOK = STEP * 1000


def figures(name: str, waiting: int, inside: int = 0) -> RoomFigures:
    room = Room(name=name, settings=RoomSettings(capacity=40))
    return RoomFigures(
        room=room, state=RoomState.OPEN, in_use=inside, waiting=waiting, admitted=1, entered=inside
    )


def test_before_the_first_look_there_is_nothing() -> None:
    view = RoomHistory().view(NOW)
    assert (view.rooms, view.from_) == ({}, format_moment(NOW))


def test_at_least_a_quarter_of_an_hour_is_kept() -> None:
    assert LENGTH * STEP >= 15 * 60


def test_every_look_is_a_point_of_every_curve() -> None:
    history = RoomHistory()
    history.add(NOW, [figures("sale", 7, inside=3)])
    history.add(NOW + LOOK, [figures("sale", 9, inside=5)])
    view = history.view(NOW + LOOK)
    curves = view.rooms["sale"]
    assert (curves.waiting, curves.inside, curves.capacity) == ([7, 9], [4, 6], [40, 40])
    assert (view.from_, view.step) == (format_moment(NOW), STEP)


def test_a_look_is_due_once_a_step() -> None:
    history = RoomHistory()
    assert history.due(NOW)
    history.add(NOW, [])
    assert not history.due(NOW + LOOK - 1)
    assert history.due(NOW + LOOK)


def test_looks_that_were_missed_and_rooms_that_were_not_there_stay_unknown() -> None:
    history = RoomHistory()
    history.add(NOW, [figures("sale", 1)])
    history.add(NOW + 3 * LOOK, [figures("sale", 4), figures("new", 2)])
    rooms = history.view(NOW + 3 * LOOK).rooms
    assert rooms["sale"].waiting == [1, None, None, 4]
    assert rooms["new"].waiting == [None, None, None, 2]
    history.add(NOW + 4 * LOOK, [figures("new", 3)])
    assert set(history.view(NOW).rooms) == {"new"}  # a room that is gone is gone


def test_what_is_kept_is_bounded_in_time_and_in_rooms() -> None:
    history = RoomHistory()
    for look in range(0, 3 * LENGTH, 2):
        history.add(NOW + look * LOOK, [figures(f"r{n}", look) for n in range(MOST + 5)])
    rooms = history.view(NOW).rooms
    assert len(rooms) == MOST
    assert {len(curves.waiting) for curves in rooms.values()} == {LENGTH - 1}


def test_after_a_clock_that_went_back_the_curve_begins_anew() -> None:
    history = RoomHistory()
    history.add(NOW, [figures("sale", 1)])
    assert history.due(NOW - 10 * LOOK)
    history.add(NOW - 10 * LOOK, [figures("sale", 2)])
    assert history.view(NOW).rooms["sale"].waiting == [2]
