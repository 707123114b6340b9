"""`penstock sim broker`: a broker of the Dispatcher, as existing ones are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import show
from penstock.cli.session import Session, command
from penstock.model.times import parse_duration

if TYPE_CHECKING:
    import asyncio

    from penstock.contrib.dispatcher.broker_book import BrokerTotals

Events = Annotated[
    int, typer.Option("--events", min=1, max=1000, help="Number of events with a waiting line.")
]
EventName = Annotated[
    str, typer.Option("--event-name", metavar="TEXT", help="Prefix of the events' names.")
]
Rate = Annotated[
    float, typer.Option("--rate", min=0.01, help="Users per second, over all events together.")
]
Stay = Annotated[
    str, typer.Option("--session", metavar="TIME", help="Mean time that a user keeps a slot.")
]
Duration = Annotated[
    str | None,
    typer.Option("--duration", metavar="TIME", help="How long users arrive [else: Ctrl-C]."),
]
Count = Annotated[int | None, typer.Option("--count", min=1, help="Stop after this many users.")]
Instance = Annotated[
    str | None,
    typer.Option(
        "--instance",
        metavar="NAME",
        help="The broker's name in users' records [default: random].",
    ),
]
Capacity = Annotated[
    int | None,
    typer.Option("--capacity", min=1, help="Slots of each event [else: rooms.capacity]."),
]
RecordDelay = Annotated[
    str,
    typer.Option(
        "--record-delay", metavar="TIME", help="Time between adding the member and its record."
    ),
]
Drain = Annotated[
    str,
    typer.Option("--drain", metavar="TIME", help="How long to wait for the last user to leave."),
]
Seed = Annotated[int | None, typer.Option("--seed", help="The same draws every time.")]


def register(app: typer.Typer) -> None:
    command(app)(broker)


def broker(
    session: Session,
    events: Events = 3,
    rate: Rate = 100.0,
    stay: Stay = "1s",
    duration: Duration = None,
    count: Count = None,
    instance: Instance = None,
    capacity: Capacity = None,
    event_name: EventName = "event",
    record_delay: RecordDelay = "0s",
    drain: Drain = "45s",
    seed: Seed = None,
) -> None:
    """Line users up in Redis as existing brokers do, and check what the Dispatcher makes of it.

    ZADD first and HSET after; tokens from the stream DISPATCH are checked with the settings' keys,
    held for a session and given back by DECR. Logs `Entered/s: N` every second; ends with totals.

    \b
    Examples:
      penstock sim broker --events 3 --rate 200 --session 1s --duration 30s
      penstock sim broker --record-delay 500ms --json
    """
    import random

    from penstock.cli.sim.running import counting, run_until_stopped
    from penstock.flow.observe import Observer
    from penstock.sim.errors import client_library

    client_library("redis", "redis")
    from penstock.contrib.dispatcher.broker import (
        ENTERED,
        BrokerSimulation,
        Load,
        open_link,
        signer_of,
    )

    settings = session.settings()
    chance = random.Random(seed)
    load = Load(
        instance=instance or f"broker-{chance.getrandbits(24):06x}",
        events=[f"{event_name}-{number}" for number in range(1, events + 1)],
        capacity=settings.rooms.capacity if capacity is None else capacity,
        rate=rate,
        session=parse_duration(stay, "--session") / 1000,
        record_delay=parse_duration(record_delay, "--record-delay") / 1000,
        count=count,
    )
    seconds = None if duration is None else parse_duration(duration, "--duration") / 1000
    patience = parse_duration(drain, "--drain") / 1000
    done: list[BrokerTotals] = []

    async def run(stopping: asyncio.Event) -> None:
        observer = Observer()
        async with (
            open_link(settings) as link,
            counting(
                *(observer, ENTERED, "Entered", stopping, seconds),
                joined="Joined",
                promoted="Promoted",
            ),
        ):
            signer = await signer_of(settings, link)
            simulation = BrokerSimulation(load, link, signer, observer, chance)
            done.append(await simulation.run(stopping, patience))

    run_until_stopped(run)
    for totals in done:
        _show(session, totals)


def _show(session: Session, totals: BrokerTotals) -> None:
    if session.json:
        show.as_json(totals)
        return
    show.table(
        ("what", ">how many"),
        [
            ("joined", f"{totals.joined:,}"),
            ("promoted", f"{totals.promoted:,}"),
            ("entered", f"{totals.entered:,}"),
            ("gave the slot back", f"{totals.left:,}"),
            ("lost", f"{totals.lost:,}"),
            ("repeated", f"{totals.repeated:,}"),
            ("invalid tokens", f"{totals.invalid_tokens:,}"),
            ("told to another instance", f"{totals.wrong_instance:,}"),
            ("records that came too late", f"{totals.late_records:,}"),
            ("overtaken", f"{totals.order_violations:,}"),
            *(
                (f"{name}: in use at most", f"{event.most_in_use:,} of {event.capacity:,}")
                for name, event in totals.events.items()
            ),
            *((f"wait {name}", f"{ms or 0:,} ms") for name, ms in totals.wait_ms.items()),
            *((f"late {name}", f"{ms or 0:,} ms") for name, ms in totals.late_ms.items()),
        ],
    )
