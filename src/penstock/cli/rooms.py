"""Waiting rooms from the command line; a server that works on the store promotes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import show
from penstock.cli.session import Session, command, group
from penstock.model.errors import ConfigError
from penstock.model.room import RoomDraft, RoomState
from penstock.model.room_view import RoomOut, room_out

if TYPE_CHECKING:
    from penstock.rooms.parts import RoomParts

app = typer.Typer(no_args_is_help=True)
group(app, "Waiting rooms: make, open, pause, close, reset, and see how they stand.")

RoomArgument = Annotated[str, typer.Argument(metavar="ROOM", help="The room's name.")]
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="Who waits or is inside.")]
Ttl = Annotated[str | None, typer.Option(metavar="DURATION", help="Such as 90s, 2m, 1h.")]


@command(app, "list")
async def list_(session: Session) -> None:
    """List rooms with how many wait and are inside.

    \b
    Examples:
      penstock room list --json
    """
    async with _rooms(session) as rooms:
        page, _ = await rooms.operate.page(limit=1000)
        found = [room_out(figures) for figures in page]
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
    )


@command(app, "show")
async def show_(session: Session, room: RoomArgument) -> None:
    """Show a room's settings and figures.

    \b
    Examples:
      penstock room show sale
    """
    async with _rooms(session) as rooms:
        _told(session, room_out(await rooms.operate.get(room)))


@command(app)
async def put(
    session: Session,
    room: RoomArgument,
    capacity: Annotated[int | None, typer.Option(help="People inside at most.")] = None,
    admit_rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="Such as 200/s, 30/m.")
    ] = None,
    claim_ttl: Ttl = None,
    session_ttl: Ttl = None,
    wait_grace: Ttl = None,
    public: Annotated[bool, typer.Option("--public", help="Anybody may join.")] = False,
) -> None:
    """Make a room, or change it; whoever waits keeps the place.

    \b
    Examples:
      penstock room put sale --capacity 1000 --admit-rate 200/s --claim-ttl 2m
    """
    draft = RoomDraft(capacity=capacity, admit_rate=admit_rate, public=public)
    if claim_ttl is not None:
        draft.claim_ttl = claim_ttl
    if session_ttl is not None:
        draft.session_ttl = session_ttl
    if wait_grace is not None:
        draft.wait_grace = wait_grace
    async with _rooms(session) as rooms:
        await rooms.operate.put(room, draft)
        _told(session, room_out(await rooms.operate.get(room)))


@command(app)
async def pause(session: Session, room: RoomArgument) -> None:
    """Let nobody in; people may go on lining up.

    \b
    Examples:
      penstock room pause sale
    """
    await _set(session, room, RoomState.PAUSED)


@command(app)
async def resume(session: Session, room: RoomArgument) -> None:
    """Let people in: opens a paused, scheduled or closed room.

    \b
    Examples:
      penstock room resume sale
    """
    await _set(session, room, RoomState.OPEN)


@command(app)
async def close(session: Session, room: RoomArgument) -> None:
    """Let nobody line up any more.

    \b
    Examples:
      penstock room close sale
    """
    await _set(session, room, RoomState.CLOSED)


@command(app)
async def reset(session: Session, room: RoomArgument) -> None:
    """Empty the room: nobody waits, nobody is inside, every earlier token is void.

    \b
    Examples:
      penstock room reset sale
    """
    async with _rooms(session) as rooms:
        await rooms.operate.reset(room)
        _told(session, room_out(await rooms.operate.get(room)))


@command(app)
async def revoke(session: Session, room: RoomArgument, user: UserArgument) -> None:
    """Put somebody out, of the line or of the room.

    \b
    Examples:
      penstock room revoke sale u1
    """
    async with _rooms(session) as rooms:
        ticket = await rooms.leave.revoke(room, user)
    if session.json:
        show.as_json({"user": ticket.user, "state": ticket.state})
    else:
        show.as_text(f"{user} is {ticket.state}")


async def _set(session: Session, room: str, state: RoomState) -> None:
    async with _rooms(session) as rooms:
        await rooms.operate.set_state(room, state)
        _told(session, room_out(await rooms.operate.get(room)))


def _told(session: Session, room: RoomOut) -> None:
    if session.json:
        show.as_json(room)
        return
    show.as_text(
        f"{room.room} is {room.state}: {room.in_use:,} of {room.capacity:,} inside,"
        f" {room.waiting:,} waiting"
    )


@asynccontextmanager
async def _rooms(session: Session) -> AsyncIterator[RoomParts]:
    from penstock.wiring import open_rooms

    async with session.parts(creates=True) as parts, open_rooms(parts) as rooms:
        if rooms is None:
            raise ConfigError(f"store: {parts.store.name} keeps no waiting rooms")
        yield rooms
