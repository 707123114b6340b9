"""`penstock sim sms-producer` and `sms-sender`: the SMS system around RabbitMQ and Redis."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import show
from penstock.cli.session import FAILED, Session, command

if TYPE_CHECKING:
    import asyncio

    from penstock.sim.sms.settings import SmsSettings

NumMessages = Annotated[int, typer.Option("--num-messages", min=1, help="How many to publish.")]
Instances = Annotated[
    int | None,
    typer.Option(
        "--instances", min=1, max=256, help="So many senders, each a process with its own log."
    ),
]
MaxAttempts = Annotated[
    int, typer.Option("--max-attempts", min=1, help="Sends of one message before it is dead.")
]
RetryAfter = Annotated[
    str, typer.Option("--retry-after", metavar="TIME", help="Wait before another attempt.")
]
AtOnce = Annotated[int, typer.Option("--at-once", min=1, help="Messages one sender sends at once.")]
IdleExit = Annotated[
    str | None,
    typer.Option("--idle-exit", metavar="TIME", help="End when nothing came for this long."),
]


def register(app: typer.Typer) -> None:
    command(app, "sms-producer")(sms_producer)
    command(app, "sms-sender")(sms_sender)


async def sms_producer(session: Session, num_messages: NumMessages = 1000) -> None:
    """Publish random SMS to the queue, persistent and confirmed.

    RABBITMQ_HOST and QUEUE_NAME come from the environment or .env.

    \b
    Examples:
      penstock sim sms-producer --num-messages 1000
    """
    settings = _settings()
    import random

    from penstock.sim.sms.producer import produce

    with show.progress(f"publishing to {settings.queue}") as progress:
        await produce(settings, num_messages, random.Random(), progress.add)
    if session.json:
        show.as_json({"published": progress.done, "queue": settings.queue})
    else:
        show.as_text(f"{progress.done:,} messages are in {settings.queue}")


def sms_sender(
    _session: Session,
    instances: Instances = None,
    max_attempts: MaxAttempts = 3,
    retry_after: RetryAfter = "1s",
    at_once: AtOnce = 1,
    idle_exit: IdleExit = None,
) -> None:
    """Send what is in the queue through a simulated provider; failures are retried, then dead.

    RABBITMQ_HOST, REDIS_HOST, QUEUE_NAME, MEAN_PROCESSING_TIME and FAILURE_RATE come from the
    environment or .env. Dead messages are in the queue QUEUE_NAME.dead. With --instances each
    sender writes sender_logs/sender-N.log; one that dies is told of and started again.

    \b
    Examples:
      penstock sim sms-sender --instances 5
      penstock monitor --update-interval 5
    """
    from penstock.cli.sim.running import run_until_stopped
    from penstock.cli.sim.senders import Manner, run_one, run_several
    from penstock.model.times import parse_duration

    settings = _settings()
    manner = Manner(
        max_attempts=max_attempts,
        retry_ms=parse_duration(retry_after, "--retry-after"),
        at_once=at_once,
        idle=None if idle_exit is None else parse_duration(idle_exit, "--idle-exit") / 1000,
    )
    if instances is None:
        run_until_stopped(lambda stopping: run_one(settings, manner, stopping))
        return
    failed: list[str] = []

    async def run(stopping: asyncio.Event) -> None:
        failed.extend(await run_several(instances, manner, stopping))

    run_until_stopped(run)
    if failed:
        print(f"penstock: failed: {', '.join(failed)}; their logs say why", file=sys.stderr)
        raise typer.Exit(FAILED)


def _settings() -> SmsSettings:
    from penstock.settings_origin import dotenv
    from penstock.sim.errors import client_library
    from penstock.sim.sms.settings import read_sms_settings

    client_library("aio_pika", "rabbitmq")
    client_library("redis", "redis")
    return read_sms_settings(dotenv())
