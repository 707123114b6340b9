"""Waiting rooms: create and change them, and see who waits; a running server admits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, cast

import typer

from penstock.cli import names, plain, show
from penstock.cli.options import Yes
from penstock.cli.session import Session, command, confirm, group, must_ask
from penstock.model.errors import InvalidMessage
from penstock.model.room_view import EnteredOut, RoomOut, TicketOut
from penstock.model.times import parse_moment

if TYPE_CHECKING:
    from penstock.api.verbs import Verb
    from penstock.sdk.fields import RoomFields

app = typer.Typer(no_args_is_help=True)
group(app, "Waiting rooms: create, open, pause, close, reset; who waits.")

PAGE = 1_000
NONE = "none"
"""The word that removes a limit or a moment."""
RoomArgument = Annotated[
    str, typer.Argument(metavar="ROOM", help="The room's name.", autocompletion=names.rooms)
]
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The visitor's id.")]
ClaimTtl = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="How long an admitted visitor has to enter (2m)."),
]
SessionTtl = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="How long a visitor inside may send no heartbeat (10m)."),
]
WaitGrace = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="How long a waiting visitor may be silent (90s)."),
]


@command(app, "list", remote=True)
async def list_(session: Session) -> None:
    """List rooms: how many slots are in use, and how many visitors wait.

    \b
    Examples:
      penstock room list --json
    """
    found: list[RoomOut] = []
    cursor: str | None = ""
    async with session.verbs() as verbs:
        while cursor is not None:
            page, cursor = await verbs.rooms.list(cursor=cursor or None, limit=PAGE)
            found += page
    if session.json:
        show.as_json({"items": found, "next": None})
        return
    show.table(
        ("room", "state", ">capacity", ">in use", ">waiting", ">promoted"),
        [
            (
                room.room,
                room.state,
                f"{room.capacity:,}",
                f"{room.in_use:,}",
                f"{room.waiting:,}",
                f"{room.promoted:,}",
            )
            for room in found
        ],
        none="no rooms; `penstock room put` makes one",
    )


@command(app, "show", remote=True)
async def show_(session: Session, room: RoomArgument) -> None:
    """Show a room's settings and figures.

    \b
    Examples:
      penstock room show sale
    """
    async with session.verbs() as verbs:
        found = await verbs.rooms.get(room)
    _show(session, found)
    if not session.json:
        show.facts([(name, value) for name, value in _settings(session, found) if value])


@command(app, remote=True)
async def put(
    session: Session,
    room: RoomArgument,
    capacity: Annotated[
        int | None,
        typer.Option(metavar="N", help="Slots: visitors admitted and inside together (1000)."),
    ] = None,
    admit_rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="Visitors admitted at most: 200/s, 30/m.")
    ] = None,
    claim_ttl: ClaimTtl = None,
    session_ttl: SessionTtl = None,
    wait_grace: WaitGrace = None,
    opens_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="The moment at which the room opens.")
    ] = None,
    lane: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=WEIGHT",
            help="A priority lane; repeatable: the lanes named replace the room's.",
        ),
    ] = None,
    lottery: Annotated[
        bool | None,
        typer.Option(
            "--lottery/--no-lottery",
            help="Visitors from before the opening are admitted in random order.",
        ),
    ] = None,
    public: Annotated[
        bool | None,
        typer.Option("--public/--no-public", help="Visitors may join without a token."),
    ] = None,
) -> None:
    """Create a room, or change it; waiting visitors keep their place.

    What is not named stays as it is; a new room takes the defaults. The word `none` removes a
    rate, a moment or a time limit.

    \b
    Examples:
      penstock room put sale --capacity 1000 --admit-rate 200/s --claim-ttl 2m --public
      penstock room put sale --capacity 500 --url http://127.0.0.1:8700
      penstock room put sale --admit-rate none --lane vip=3
    """
    from penstock.sdk.room_changes import change_room

    removable = {
        "admit_rate": admit_rate,
        "claim_ttl": claim_ttl,
        "session_ttl": session_ttl,
        "wait_grace": wait_grace,
        "opens_at": opens_at,
    }
    others = {
        "capacity": capacity,
        "lanes": lanes_of(lane or []),
        "lottery": lottery,
        "public": public,
    }
    named = {name: value for name, value in (removable | others).items() if value is not None}
    taken_away = {name: None for name in removable if named.get(name) == NONE}
    settings = cast("RoomFields", named | taken_away)
    _show(session, await session.creating(lambda verbs: change_room(verbs.rooms, room, **settings)))


def lanes_of(written: list[str]) -> dict[str, int] | None:
    """["vip=3"] → {"vip": 3}."""
    lanes = {}
    for one in written:
        name, _, weight = one.partition("=")
        if not weight.isdigit():
            raise InvalidMessage("lanes", f"must be NAME=WEIGHT, such as vip=3, not {one[:50]!r}")
        lanes[name] = int(weight)
    return lanes or None


@command(app, remote=True)
async def reset(session: Session, room: RoomArgument, yes: Yes = False) -> None:
    """Empty the room: remove every visitor who waits or is inside, and void every earlier token.

    The command prints the number of these visitors and asks for confirmation.

    \b
    Examples:
      penstock room reset sale
    """
    asks = must_ask(yes)
    async with session.verbs() as verbs:
        if asks:
            found = await verbs.rooms.get(room)
            confirm(
                f"Remove {found.waiting:,} who wait and {found.in_use:,} who hold a slot of"
                f" {show.printable(room)}?"
            )
        _show(session, await verbs.rooms.reset(room))


@command(app, remote=True)
async def ticket(session: Session, room: RoomArgument, user: UserArgument) -> None:
    """Show a visitor's place in line; it counts as a heartbeat.

    \b
    Examples:
      penstock room ticket sale u1
    """
    async with session.verbs() as verbs:
        _placed(session, await verbs.rooms.ticket(room, user))


@command(app, remote=True)
async def join(
    session: Session,
    room: RoomArgument,
    user: UserArgument,
    lane: Annotated[str | None, typer.Option(metavar="NAME", help="The lane to wait in.")] = None,
) -> None:
    """Add a visitor to the line; a running server admits them.

    \b
    Examples:
      penstock room join sale u1 --lane vip
    """
    async with session.verbs() as verbs:
        _placed(session, await verbs.rooms.join(room, user, lane=lane))


def _placed(session: Session, ticket: TicketOut) -> None:
    if session.json:
        show.as_json(ticket)
        return
    place = "" if ticket.position is None else f", place {ticket.position:,} of {ticket.waiting:,}"
    show.as_text(f"{ticket.user} is {ticket.state}{place}")


def _show(session: Session, room: RoomOut) -> None:
    if session.json:
        show.as_json(room)
        return
    show.as_text(
        f"{room.room} is {room.state}: {room.in_use:,} of {room.capacity:,} slots in use,"
        f" {room.waiting:,} waiting"
    )


def _settings(session: Session, room: RoomOut) -> Iterator[tuple[str, str | None]]:
    """The room's settings besides its slots, and the results so far."""
    yield "admit rate", room.admit_rate
    yield "claim ttl", room.claim_ttl
    yield "session ttl", room.session_ttl
    yield "wait grace", room.wait_grace
    yield "lanes", ", ".join(f"{name}={weight}" for name, weight in room.lanes.items())
    yield "lottery", "yes" if room.lottery else None
    if room.opens_at is not None:
        yield "opens", session.times.both(parse_moment(room.opens_at))
    yield "public", "yes" if room.public else "no"
    yield "joined", f"{room.joined:,}, promoted {room.promoted:,}, entered {room.entered:,}"


def _answered(
    session: Session, verb: Verb, names: tuple[str, ...], answer: RoomOut | EnteredOut
) -> None:
    del verb, names
    if isinstance(answer, RoomOut):
        _show(session, answer)
    elif session.json:
        show.as_json({"user": answer.user, "state": answer.state})
    else:
        show.as_text(f"{answer.user} is {answer.state}")


plain.register(
    app,
    "room",
    lambda verbs: verbs.rooms,
    {"room": RoomArgument, "user": UserArgument},
    _answered,
)
