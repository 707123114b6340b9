"""`penstock size`: estimates the resources of a load from measured figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.cli import show
from penstock.cli.session import Session, command

if TYPE_CHECKING:
    from penstock.cli.size.plan import Answer

Rate = Annotated[
    str,
    typer.Option("--rate", metavar="RATE", help="Messages in, and out: 50k/s, 3M/h, 100M/d."),
]
Pending = Annotated[
    str, typer.Option("--pending", metavar="NUMBER", help="Messages that wait: 500k, 200M, 1G.")
]
Payload = Annotated[
    int, typer.Option("--payload", min=0, max=262_144, metavar="BYTES", help="Size of a payload.")
]
Retention = Annotated[
    str,
    typer.Option("--retention", metavar="DURATION", help="Like [limits] retention: 24h, 7d."),
]
RetentionCount = Annotated[
    str,
    typer.Option("--retention-count", metavar="NUMBER", help="Like [limits] retention_count."),
]
Busy = Annotated[
    int, typer.Option("--busy", min=5, max=100, metavar="PERCENT", help="How busy a core may be.")
]
NodeMemory = Annotated[
    str,
    typer.Option("--node-memory", metavar="BYTES", help="Redis: what a node may hold: 8G, 32G."),
]
Replicas = Annotated[
    int, typer.Option("--replicas", min=0, max=5, help="Redis: replicas of every node.")
]
WritePrice = Annotated[
    float | None,
    typer.Option("--write-price", min=0, help="DynamoDB: US$ for a million write units."),
]
ReadPrice = Annotated[
    float | None,
    typer.Option("--read-price", min=0, help="DynamoDB: US$ for a million read units."),
]
StoragePrice = Annotated[
    float | None,
    typer.Option("--storage-price", min=0, help="DynamoDB: US$ for a GB and month."),
]


def register(app: typer.Typer) -> None:
    command(app)(size)


def size(
    session: Session,
    rate: Rate,
    pending: Pending,
    payload: Payload = 100,
    retention: Retention = "24h",
    retention_count: RetentionCount = "1M",
    busy: Busy = 60,
    node_memory: NodeMemory = "16G",
    replicas: Replicas = 1,
    write_price: WritePrice = None,
    read_price: ReadPrice = None,
    storage_price: StoragePrice = None,
) -> None:
    """Estimate what a load takes: processes, nodes, memory, disk, network, and DynamoDB's price.

    Nothing is measured here: every number comes from figures measured on one machine, which are
    shown with it. Measure your own with `penstock bench`. --store takes sqlite, redis, postgresql
    or dynamodb, or a store's address; without it, it is the store of the settings.

    \b
    Examples:
      penstock size --rate 50k/s --pending 200M --store redis
      penstock size --rate 2k/s --pending 5M --store sqlite --payload 400
      penstock size --rate 1M/h --pending 40M --store dynamodb --write-price 0.70 --json
    """
    from penstock.cli.size.plan import Load, Prices, count, kind_of, per_second, plan

    load = Load(
        rate=per_second(rate),
        pending=count(pending, "pending"),
        store=kind_of(session.store or session.settings().store),
        payload=payload,
        retention=retention,
        retention_count=count(retention_count, "retention-count"),
        busy=busy / 100,
        node_memory=count(node_memory, "node-memory"),
        replicas=replicas,
        prices=Prices(write_price, read_price, storage_price),
    )
    answer = plan(load)
    if session.json:
        show.as_json(msgspec.to_builtins(answer))
    else:
        _show(answer)


def _show(answer: Answer) -> None:
    show.table(
        ("what", ">how much", "/why"),
        [(line.what, line.text, line.why) for line in answer.lines],
    )
    show.as_text("", *answer.notes)
