"""A process that decides and sends by policies: `python -m tests.faults.policy_caller URL NAME …`.

`URL NAME turns N`  says ready, waits for a line, decides one batch over a few keys, says begun,
                    waits for a line, decides N more; prints the key of each message it sent
`URL NAME hold KEY` gets one message allowed, says so, and does nothing more until it is killed
"""

from __future__ import annotations

import asyncio
import sys

from penstock.model.decision import Conclusion, End, Question
from penstock.model.verdict import Verdict
from penstock.settings import given
from penstock.stores.redis import RedisStore
from penstock.stores.sqlite import SqliteStore
from penstock.wiring import open_store

HOLD = 30_000
KEYS = 5


async def opened(url: str) -> RedisStore | SqliteStore:
    store = (await open_store(given(store=url))).messages
    assert isinstance(store, RedisStore | SqliteStore)
    return store


async def turns(store: RedisStore | SqliteStore, name: str, turns: range) -> None:
    for turn in turns:
        now = store.clock.now()
        batch = [
            Question(id=f"{name}-{turn}-{n}", key=f"k{n % KEYS}", due=now) for n in range(4 * KEYS)
        ]
        decisions = await store.policies.decide(batch, now, HOLD)
        pairs = zip(batch, decisions, strict=True)
        allowed = [question for question, d in pairs if d.verdict is Verdict.ALLOW]
        # Every third is not sent after all: its place is for another.
        unsent, sent = allowed[::3], [q for i, q in enumerate(allowed) if i % 3]
        ends = [
            *(Conclusion(question, End.COMMIT) for question in sent),
            *(Conclusion(question, End.RELEASE) for question in unsent),
        ]
        await store.policies.conclude(ends, store.clock.now())
        for question in sent:
            print(question.key, flush=True)


async def main(url: str, name: str, what: str, more: str) -> None:
    store = await opened(url)
    if what == "turns":
        print("ready", flush=True)
        sys.stdin.readline()
        await turns(store, name, range(1))
        print("begun", flush=True)
        sys.stdin.readline()
        await turns(store, name, range(1, 1 + int(more)))
    else:
        now = store.clock.now()
        asked = [Question(id=name, key=more, due=now)]
        decisions = await store.policies.decide(asked, now, HOLD)
        print(decisions[0].verdict, flush=True)
        await asyncio.sleep(60)  # whoever started it kills it
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
