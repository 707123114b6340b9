"""What a worker of `python -m bench kill` calls: each call is written down before it returns."""

from __future__ import annotations

import os
import time

from penstock import Message

_calls = os.open(os.environ.get("BENCH_CALLS", os.devnull), os.O_WRONLY | os.O_APPEND)


def _note(ids: list[str]) -> None:
    now = time.time_ns() // 1_000_000
    os.write(_calls, "".join(f"{one} {now}\n" for one in ids).encode())


async def one(message: Message) -> None:
    _note([message.id])


async def many(messages: list[Message]) -> None:
    _note([message.id for message in messages])
