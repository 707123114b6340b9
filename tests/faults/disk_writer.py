"""A program that schedules, claims and settles without pause, saying what it was answered.

    python -m tests.faults.disk_writer URL NAME [MUTANT]

Lines: `asked ID`, `put ID` (acknowledged), `settled ID`, `failed TEXT`. Mutants are the faults that
the test must be able to see: `no-sync` (answers without the disk), `forget` (a failed fsync is only
logged).
"""

from __future__ import annotations

import asyncio
import os
import sys

from penstock.model.errors import StoreFailed, StoreUnavailable
from penstock.model.message import NewMessage
from penstock.model.outcome import Settlement
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.stores.sqlite import SqliteStore, disk, group, open_store, wal

WRITERS = 4


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


async def put(store: MessageStore, name: str) -> None:
    """One message after another, due now or soon: somebody is always waiting for the disk."""
    number = 0
    while True:
        number += 1
        message_id = f"{name}-{number}"
        now = store.clock.now()
        message = NewMessage(
            id=message_id, route="r", key="k", payload=b"x" * 200, due=now + number % 3 * 20
        )
        say(f"asked {message_id}")
        try:
            await store.put([message], now)
        except StoreFailed as exc:
            say(f"failed {exc}")
            return
        except StoreUnavailable:
            continue
        say(f"put {message_id}")


async def work(store: MessageStore) -> None:
    while True:
        try:
            claim = await store.claim("r", 5, 600_000, store.clock.now())
            settlements = [
                Settlement(message=m, token=claim.token, state=State.DELIVERED, event="delivered")
                for m in claim.messages
            ]
            states = await store.settle(settlements, store.clock.now())
        except StoreFailed:
            return
        except StoreUnavailable:
            continue
        for message, state in zip(claim.messages, states, strict=True):
            if state is State.DELIVERED:
                say(f"settled {message.id}")
        await asyncio.sleep(0.001)


def mutate(name: str) -> None:
    """Break it on purpose; methods are replaced, so types are not what they were."""
    if name == "no-sync":
        disk.Disk._write = lambda _: None  # type: ignore[assignment, method-assign]
    elif name == "forget":
        # As if it had worked, but for those who wait: they are refused, and try another.
        disk.Disk._failed = property(lambda _: None, lambda _, __: None)  # type: ignore[assignment]
        group.GroupCommit._notice = lambda *_: None  # type: ignore[method-assign]


async def main(url: str, name: str, mutant: str = "") -> None:
    mutate(mutant)
    if mutant != "forget":  # a log that is copied starts over, and its hole is gone with it
        wal.CHANGES, wal.START_OVER = 400, 50
    store = (
        await open_store(url, total_partitions=8, retention=10**9, retention_count=10**6)
    ).messages
    assert isinstance(store, SqliteStore)
    store._group._busy = lambda: True  # the disk's thread is what is tried; SQLite's own is not
    async with asyncio.TaskGroup() as tasks:
        for writer in range(WRITERS):
            tasks.create_task(put(store, f"{name}-{writer}"))
        tasks.create_task(work(store))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
