"""http:// passes the conformance suite against a real server."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from penstock.model.envelope import ATTEMPT, DUE, ID
from penstock.ports.sink import Sink, SinkOptions
from penstock.sim.receiver import Receiver
from penstock.sim.replies import OK, How, Reply
from penstock.sinks.webhook import open_sink
from penstock.testing.sink_suite import Arrival, RemoteEnd, RemoteSinkSuite

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class WebhookEnd(RemoteEnd):
    secrets = ("opensesame", SECRET)

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    async def open(self, options: SinkOptions) -> Sink:
        url = f"http://ali:opensesame@127.0.0.1:{self._receiver.port}/hook"
        return await open_sink(url, replace(options, secret=SECRET))

    async def arrivals(self, number: int) -> Sequence[Arrival]:
        return [
            Arrival(
                id=request.headers[ID],
                attempt=int(request.headers[ATTEMPT]),
                due=request.headers[DUE],
                body=request.body,
                content_type=request.headers["content-type"],
                headers=request.headers,
            )
            for request in await self._receiver.wait_for(number)
        ]

    async def leave(self) -> None:
        await self._receiver.down()

    async def hang(self) -> None:
        self._receiver.always(Reply(how=How.HANG))

    async def cut(self) -> None:
        self._receiver.always(Reply(how=How.CUT))

    async def recover(self) -> None:
        self._receiver.always(OK)
        await self._receiver.up()


class TestWebhookSink(RemoteSinkSuite):
    hanging_is_unreachable = False

    @pytest.fixture
    async def end(self) -> AsyncIterator[WebhookEnd]:
        async with Receiver() as receiver:
            yield WebhookEnd(receiver)
