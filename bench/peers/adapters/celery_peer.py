"""Celery on Redis: late acknowledgement, ETA tasks, two prefork children."""

import datetime as dt

import side
from celery import Celery

# What a dead worker had is looked for every second, where that is measured.
SOON = {"unacked_restore_interval": 1, "unacked_restore_throttle": 1} if side.LEASE else {}
app = Celery("celery_peer", broker=side.URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=4,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    # Longer than the longest ETA, or tasks are delivered again while they wait.
    broker_transport_options={"visibility_timeout": side.LEASE or 2 * 3600} | SOON,
)


@app.task
def handle(body: str) -> None:
    side.record(body)


def one(body: str, due: int, producer: object = None) -> None:
    eta = dt.datetime.fromtimestamp(due / 1000, dt.UTC)
    handle.apply_async((body,), eta=eta, producer=producer)


def many(items: list[tuple[str, int]]) -> None:
    """Celery has no bulk call: one producer for all is what it offers."""
    with app.producer_or_acquire() as producer:
        for body, due in items:
            one(body, due, producer)
