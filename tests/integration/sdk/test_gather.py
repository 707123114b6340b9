"""Callers that schedule at the same time, against a real server."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import penstock
from penstock.api.http.server import HttpServer
from penstock.model.errors import InvalidMessage, TooLarge, UnknownRoute
from penstock.sdk.async_client import AsyncClient
from penstock.wiring import Parts
from tests.integration.sdk.conftest import TOKEN

FIELDS = [
    {"payload": 1, "id": "good-1", "delay": 60},
    {"payload": 2, "id": "bad-route", "route": "nowhere"},
    {"payload": 3, "id": "good-2", "delay": 60},
    {"payload": 4, "id": "bad-priority", "priority": 11},
    {"payload": "x" * 20_000, "id": "too-large"},
    {"payload": 5, "id": "good-1", "delay": 99},
]
OUTCOMES = [
    ("good-1", False),
    UnknownRoute,
    ("good-2", False),
    InvalidMessage,
    TooLarge,
    ("good-1", True),
]


def seen(outcome: object) -> object:
    if isinstance(outcome, penstock.Receipt):
        return (outcome.id, outcome.duplicate)
    return type(outcome)


async def test_each_task_gets_the_outcome_it_would_get_alone(parts: Parts) -> None:
    async with HttpServer(parts) as server:
        async with AsyncClient(server.url, token=TOKEN) as client:
            asked = [client.schedule(**fields) for fields in FIELDS]  # type: ignore[arg-type]
            together = await asyncio.gather(*asked, return_exceptions=True)
        assert [seen(outcome) for outcome in together] == OUTCOMES
        async with AsyncClient(server.url, token=TOKEN, gather=False) as client:
            for fields, before in zip(FIELDS, together, strict=True):
                asked_alone = client.schedule(**fields)  # type: ignore[arg-type]
                (alone,) = await asyncio.gather(asked_alone, return_exceptions=True)
                assert type(alone) is type(before)
                assert str(alone) == str(before) or isinstance(before, penstock.Receipt)


async def test_tasks_that_schedule_at_the_same_time_share_requests(parts: Parts) -> None:
    async with HttpServer(parts) as server:
        requests = server._server.server_state
        async with AsyncClient(server.url, token=TOKEN) as client:
            before = requests.total_requests
            receipts = await asyncio.gather(
                *(client.schedule(i, id=f"together-{i}") for i in range(100))
            )
            assert [receipt.id for receipt in receipts] == [f"together-{i}" for i in range(100)]
            assert requests.total_requests - before <= 4
        async with AsyncClient(server.url, token=TOKEN, gather=False) as client:
            before = requests.total_requests
            await asyncio.gather(*(client.schedule(i, id=f"apart-{i}") for i in range(20)))
            assert requests.total_requests - before == 20


async def test_threads_that_schedule_at_the_same_time_each_get_their_receipt(parts: Parts) -> None:
    def schedule(url: str) -> list[str]:
        with (
            penstock.Client(url, token=TOKEN) as client,
            ThreadPoolExecutor(max_workers=16) as threads,
        ):
            names = [f"thread-{i}" for i in range(200)]
            asked = threads.map(lambda name: client.schedule(name, id=name, delay=60), names)
            assert [receipt.id for receipt in asked] == names
            return names

    async with HttpServer(parts) as server, AsyncClient(server.url, token=TOKEN) as client:
        for name in await asyncio.to_thread(schedule, server.url):
            assert (await client.get(name)).id == name
