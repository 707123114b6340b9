"""Huey on Redis: two worker processes, a scheduler that looks every second (its shortest)."""

import side
from huey import RedisHuey

huey = RedisHuey("peers", url=side.URL, results=False, utc=True)


@huey.task()
def handle(body: str) -> None:
    side.record(body)


def one(body: str, due: int) -> None:
    """As a delay: of an `eta` it forgets the fraction of a second, and would be early."""
    handle.schedule((body,), delay=max(0.0, side.seconds_until(due)))
