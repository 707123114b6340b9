"""`penstock sim sms-producer` and `sms-sender`: the SMS system around RabbitMQ and Redis."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import show
from penstock.cli.session import FAILED, Session, command

if TYPE_CHECKING:
    import asyncio

    from penstock.contrib.sms.senders import Logs
    from penstock.contrib.sms.settings import SmsSettings
    from penstock.contrib.sms.stats import SmsFigures

NumMessages = Annotated[
    int | None,
    typer.Option(
        "--num-messages",
        min=1,
        help="How many to publish [default: 1000; with --rate: until it is stopped].",
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--rate", min=0.01, help="Most messages per second [default: as many as possible]."
    ),
]
Instances = Annotated[
    int | None,
    typer.Option(
        "--instances", min=1, max=256, help="Number of senders, each a process with its own log."
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
    typer.Option("--idle-exit", metavar="TIME", help="End when no message arrived for this long."),
]
LogFile = Annotated[
    Path | None,
    typer.Option(
        "--log-file", metavar="FILE", help="Also log to this file, rotated [env SENDER_LOG_FILE]."
    ),
]
NoConsole = Annotated[bool, typer.Option("--no-console", hidden=True)]
DEFAULT_NUMBER = 1000


def register(app: typer.Typer) -> None:
    command(app, "sms-producer")(sms_producer)
    command(app, "sms-sender")(sms_sender)


def sms_producer(session: Session, num_messages: NumMessages = None, rate: Rate = None) -> None:
    """Publish random SMS to the queue, persistent and confirmed.

    RABBITMQ_HOST and QUEUE_NAME come from the environment or .env. With --rate it logs
    `Produced messages/s: N` every second.

    \b
    Examples:
      penstock sim sms-producer --num-messages 1000
      penstock sim sms-producer --rate 30
    """
    from penstock.cli.sim.running import counting, run_until_stopped
    from penstock.flow.observe import Observer

    settings = _settings()
    number = DEFAULT_NUMBER if num_messages is None and rate is None else num_messages

    async def run(stopping: asyncio.Event) -> None:
        import random

        from penstock.contrib.sms.producer import produce

        observer = Observer()
        with show.progress(f"publishing to {settings.queue}") as progress:

            def confirmed(more: int) -> None:
                progress.add(more)
                observer.count("produced", settings.queue, more)

            logs = _logs(session, settings)
            async with counting(
                observer, "produced", "Produced messages", stopping, None, logs.open
            ):
                await produce(
                    settings, number, random.Random(), confirmed, rate=rate, stopping=stopping
                )
        if session.json:
            show.as_json({"published": progress.done, "queue": settings.queue})
        else:
            show.as_text(f"{progress.done:,} messages are in {settings.queue}")

    run_until_stopped(run)


def sms_sender(
    session: Session,
    instances: Instances = None,
    max_attempts: MaxAttempts = 3,
    retry_after: RetryAfter = "1s",
    at_once: AtOnce = 1,
    idle_exit: IdleExit = None,
    log_file: LogFile = None,
    no_console: NoConsole = False,
) -> None:
    """Send what is in the queue through a simulated provider; failures are retried, then dead.

    RABBITMQ_HOST, REDIS_HOST, QUEUE_NAME, MEAN_PROCESSING_TIME, FAILURE_RATE, LOG_FORMAT and
    SENDER_LOG_FILE come from the environment or .env. Dead messages are in the queue
    QUEUE_NAME.dead. With --instances each sender writes sender_logs/sender_instance_N.log, rotated;
    one that dies is reported and started again.

    \b
    Examples:
      penstock sim sms-sender --instances 5
      penstock monitor --update-interval 5
    """
    from penstock.cli.sim.running import run_until_stopped
    from penstock.contrib.sms.senders import Manner, run_one, run_several
    from penstock.model.times import parse_duration

    settings = _settings()
    logs = _logs(session, settings, log_file or settings.sender_log_file, console=not no_console)
    manner = Manner(
        max_attempts=max_attempts,
        retry_ms=parse_duration(retry_after, "--retry-after"),
        at_once=at_once,
        idle=None if idle_exit is None else parse_duration(idle_exit, "--idle-exit") / 1000,
    )
    failed: list[str] = []
    figures: SmsFigures | None = None

    async def run(stopping: asyncio.Event) -> None:
        nonlocal figures
        if instances is None:
            figures = await run_one(settings, manner, logs, stopping)
            return
        names, figures = await run_several(instances, settings, manner, logs, stopping)
        failed.extend(names)

    run_until_stopped(run)
    if session.json and figures is not None:
        from penstock.contrib.sms.monitor import sms_look

        show.as_json(sms_look(settings.queue, figures))
    if failed:
        print(f"penstock: failed: {', '.join(failed)}; their logs say why", file=sys.stderr)
        raise typer.Exit(FAILED)


def _logs(
    session: Session, settings: SmsSettings, file: Path | None = None, *, console: bool = True
) -> Logs:
    """The log set-up of LOG_FORMAT, or else of the settings' [log], whose file is the engine's."""
    from penstock.contrib.sms.senders import Logs

    log = session.settings().log
    return Logs(
        level=log.level, format=settings.log_format or log.format, file=file, console=console
    )


def _settings() -> SmsSettings:
    from penstock.contrib.sms.settings import read_sms_settings
    from penstock.settings_origin import dotenv
    from penstock.sim.errors import client_library

    client_library("aio_pika", "sms")
    client_library("redis", "sms")
    return read_sms_settings(dotenv())
