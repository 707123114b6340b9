"""Rooms on a real Redis, with everything that works on them, for one test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from penstock.contrib.dispatcher.dispatch import Dispatcher
from penstock.flow.observe import Observer
from penstock.redis_kit.address import parse_address
from penstock.redis_kit.connect import connect
from penstock.rooms.enter import Enter
from penstock.rooms.join import Join
from penstock.rooms.leave import Leave
from penstock.rooms.operate import Operate
from penstock.rooms.promote import Promoter
from penstock.rooms.wait import Wait
from penstock.stores.redis.rooms.entries import RedisEntries
from penstock.stores.redis.rooms.keys import PATIENCE, RoomRunner
from penstock.stores.redis.rooms.store import RedisRooms
from penstock.time.clock import SystemClock
from penstock.tokens import JwtSigner, SigningKey
from systems.servers.redis import patient

KEY = SigningKey("k1", b"0123456789abcdef0123456789abcdef")


@dataclass
class Rooms:
    """One process's parts."""

    store: RedisRooms
    runner: RoomRunner
    signer: JwtSigner
    observer: Observer
    join: Join
    wait: Wait
    enter: Enter
    leave: Leave
    operate: Operate
    promoter: Promoter
    entries: RedisEntries
    dispatcher: Dispatcher


@asynccontextmanager
async def rooms_on(
    url: str,
    *,
    consumer: str = "c1",
    run: bool = True,
    abandoned: int = 30_000,
    capacity: int = 1000,
) -> AsyncIterator[Rooms]:
    """Open, run the promoter and the dispatcher, stop and close."""
    async with AsyncExitStack() as stack:
        address = parse_address(patient(url))
        server = connect(address)
        stack.push_async_callback(server.close)
        patience = PATIENCE._replace(waits=(0.05,) * 3)
        runner = RoomRunner(server, "redis", address.prefix, patience=patience)
        store = RedisRooms(runner, SystemClock(), capacity)
        signer = JwtSigner([KEY])
        observer = Observer()
        entries = RedisEntries(runner, consumer)
        parts = Rooms(
            store=store,
            runner=runner,
            signer=signer,
            observer=observer,
            join=Join(store, signer, observer, "i-1"),
            wait=Wait(store, signer),
            enter=Enter(store, signer, observer),
            leave=Leave(store, observer),
            operate=Operate(store, capacity),
            promoter=Promoter(store, observer),
            entries=entries,
            dispatcher=Dispatcher(store, entries, signer, observer, poll=200, abandoned=abandoned),
        )
        tasks = []
        if run:
            tasks = [
                asyncio.create_task(parts.promoter.run()),
                asyncio.create_task(parts.dispatcher.run()),
            ]
        try:
            yield parts
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended


async def eventually(check: Callable[[], bool], seconds: float = 300.0) -> None:
    """Return as soon as it is so; fail when it does not become so."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.02)
