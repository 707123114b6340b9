"""RabbitMQ: dead-lettered into the work queue when the TTL ends. `one` queue to wait in, in
which each waits for all before it, or `slots`: one for every 100 ms."""

import asyncio
import contextlib
import sys

import aiormq
import side

channel, SLOT = None, 100
made: set[str] = set()


async def queue_for(due: int) -> tuple[str, int]:
    name, at, gone = "wait", due, {}
    if sys.argv[-1] == "slots":
        at = -(-due // SLOT) * SLOT
        name, gone = f"wait.{at}", {"x-expires": int(side.seconds_until(at) * 1000) + 60_000}
    if name not in made:
        made.add(name)
        rules = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"} | gone
        await channel.queue_declare(name, durable=True, arguments=rules)
    return name, at


async def one(body: str, due: int) -> None:
    name, at = await queue_for(due)
    wait = max(0, 1 + int(side.seconds_until(at) * 1000))
    kept = aiormq.spec.Basic.Properties(delivery_mode=2, expiration=str(wait))
    await channel.basic_publish(body.encode(), routing_key=name, properties=kept)


async def many(items: list[tuple[str, int]]) -> None:
    await queue_for(items[0][1])
    for start in range(0, len(items), 500):
        await asyncio.gather(*(one(*item) for item in items[start : start + 500]))


@contextlib.asynccontextmanager
async def opened():
    global channel
    connection = await aiormq.connect(side.URL)
    channel = await connection.channel()
    await channel.confirm_delivery()
    await channel.queue_declare("work", durable=True)
    yield
    await connection.close()


async def handle(message: aiormq.abc.DeliveredMessage) -> None:
    side.record(message.body.decode())
    await message.channel.basic_ack(message.delivery_tag, wait=False)


async def worker() -> None:
    async with opened():
        await channel.basic_qos(prefetch_count=500)
        await channel.basic_consume("work", handle)
        await asyncio.Event().wait()
