"""RQ: workers that do not fork for a job (SimpleWorker), each with the scheduler."""

import datetime as dt

import side
from redis import Redis
from rq import Queue, SimpleWorker

connection = Redis.from_url(side.URL)
queue = Queue(connection=connection)
KEPT = {"result_ttl": 0, "failure_ttl": 0}


def handle(body: str) -> None:
    side.record(body)


def one(body: str, due: int) -> None:
    queue.enqueue_at(dt.datetime.fromtimestamp(due / 1000, dt.UTC), "rq_peer.handle", body, **KEPT)


def many(items: list[tuple[str, int]]) -> None:
    for start in range(0, len(items), 500):
        with connection.pipeline() as pipeline:
            for body, due in items[start : start + 500]:
                at = dt.datetime.fromtimestamp(due / 1000, dt.UTC)
                queue.enqueue_at(at, "rq_peer.handle", body, pipeline=pipeline, **KEPT)
            pipeline.execute()


class Worker(SimpleWorker):
    """As it is; named so that the command line finds it."""
