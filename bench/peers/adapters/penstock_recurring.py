"""Penstock's rules: each worker plants, handlers run in the same process."""

import asyncio
import sys

import side

import penstock


async def handle(messages: list[penstock.Message]) -> None:
    side.record(*(f"{message.id.partition('@')[0]} {message.due}" for message in messages))


async def put() -> None:
    async with penstock.open(side.URL) as engine:
        for rule in range(side.RULES):
            await engine.recurring.put(str(rule), cron="* * * * *")


async def run() -> None:
    async with penstock.open(side.URL, routes={"default": handle}, worker=True):
        await asyncio.Event().wait()


asyncio.run({"put": put, "run": run}[sys.argv[-1]]())
