"""Dramatiq on Redis: two processes of eight threads, as its documentation counts."""

import dramatiq
import side
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import AgeLimit, Callbacks, Retries, ShutdownNotifications, TimeLimit

# How soon it looks for what a dead worker had goes by chance: one command in ten, not in 1,000.
soon = {"heartbeat_timeout": side.LEASE * 1000, "maintenance_chance": 100_000}
lease = soon if side.LEASE else {}
kept = [AgeLimit(), TimeLimit(), ShutdownNotifications(), Callbacks(), Retries()]
broker = RedisBroker(url=side.URL, middleware=kept, **lease)
dramatiq.set_broker(broker)


@dramatiq.actor
def handle(body: str) -> None:
    side.record(body)


def one(body: str, due: int) -> None:
    delay = max(0, round(side.seconds_until(due) * 1000))
    handle.send_with_options(args=(body,), delay=delay)
