"""A worker process with a no-op handler: `python -m bench.worker URL`.

Works until its standard input is closed, then prints how late each message was, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys

import uvloop

import penstock


async def main(url: str) -> None:
    lates: list[int] = []

    async def handle(batch: list[penstock.Message]) -> None:
        now = engine.clock.now()
        lates.extend(now - message.due for message in batch)

    async with penstock.open(url, routes={"default": handle}, worker=True) as engine:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
    print(json.dumps(lates))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
