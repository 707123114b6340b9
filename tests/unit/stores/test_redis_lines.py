"""Lines to a server that says what a test tells it to say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis import exceptions as vendor
from redis.asyncio import Connection as VendorConnection

from penstock.redis_kit.connect import Lines, heeding, packed, packed_beginning, packed_end

COMMAND = ("PING",)
PING = packed(COMMAND)


class Server:
    """Answers every command with the next of its answers; None: never."""

    def __init__(self) -> None:
        self.answers: list[bytes | None] = []
        self.heard: list[bytes] = []
        self.lines: list[asyncio.StreamWriter] = []
        self.told = asyncio.Event()
        self._serving: list[asyncio.Task[None]] = []

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.lines.append(writer)
        self._serving.append(asyncio.ensure_future(self._serve(reader, writer)))

    async def end(self) -> None:
        for writer in self.lines:
            writer.close()
        await asyncio.gather(*self._serving, return_exceptions=True)  # they may be reset

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            self.heard.append(data)
            self.told.set()
            answer = self.answers.pop(0) if self.answers else b"+OK\r\n"
            if answer is not None:
                writer.write(answer)
        writer.close()


class Connection:
    """Opens streams, as redis-py's does."""

    _reader: asyncio.StreamReader | None = None
    _writer: asyncio.StreamWriter | None = None

    def __init__(self, port: int) -> None:
        self._port = port

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def disconnect(self, nowait: bool = False) -> None:
        assert nowait
        assert self._writer is not None
        self._writer.close()


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
async def lines(server: Server) -> AsyncIterator[Lines]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    made = Lines(lambda: Connection(port), most=2, seconds=0.2)
    yield made
    await made.drop()
    listening.close()
    await listening.wait_closed()
    await server.end()


async def test_a_command_goes_out_and_its_answer_comes_back(server: Server, lines: Lines) -> None:
    server.answers = [b"*2\r\n:7\r\n$-1\r\n"]
    assert await lines.ask(COMMAND) == [7, None]
    assert server.heard == [PING]


def test_a_command_packed_in_two_pieces_is_the_one_packed_at_once() -> None:
    beginning, more = ("EVALSHA", b"\xff", 3), (b"", b"a\r\n", b"\0" * 300, b"1")
    assert packed_beginning(beginning) + packed_end(*more) == packed((*beginning, *more))


async def test_a_line_is_used_again(server: Server, lines: Lines) -> None:
    for _ in range(5):
        await lines.ask(COMMAND)
    assert len(server.lines) == 1


async def test_what_the_server_refuses_is_raised_and_the_line_goes_on(
    server: Server, lines: Lines
) -> None:
    server.answers = [b"-NOSCRIPT No matching script.\r\n"]
    with pytest.raises(vendor.NoScriptError):
        await lines.ask(COMMAND)
    assert await lines.ask(COMMAND) == b"OK"
    assert len(server.lines) == 1


async def test_a_line_that_was_closed_while_nobody_used_it_is_not_used(
    server: Server, lines: Lines
) -> None:
    await lines.ask(COMMAND)
    server.lines[0].close()
    await server.lines[0].wait_closed()
    await asyncio.sleep(0.01)  # until the end of it has come here
    assert await lines.ask(COMMAND) == b"OK"
    assert len(server.lines) == 2


async def test_a_server_that_hangs_up_instead_of_answering_is_away(
    server: Server, lines: Lines
) -> None:
    server.answers = [None]
    asked = asyncio.ensure_future(lines.ask(COMMAND))
    await server.told.wait()
    server.lines[0].close()
    with pytest.raises(vendor.ConnectionError):
        await asked


async def test_an_answer_that_comes_too_late_is_nobodys(server: Server, lines: Lines) -> None:
    server.answers = [None, b":2\r\n"]
    with pytest.raises(vendor.TimeoutError):
        await lines.ask(COMMAND)
    server.lines[0].write(b":1\r\n")
    assert await lines.ask(COMMAND) == 2


async def test_whoever_leaves_takes_the_line_with_them(server: Server, lines: Lines) -> None:
    server.answers = [None, b":2\r\n"]
    asked = asyncio.ensure_future(lines.ask(COMMAND))
    await server.told.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert await lines.ask(COMMAND) == 2
    assert len(server.lines) == 2


async def test_an_answer_in_pieces_is_one_answer(server: Server, lines: Lines) -> None:
    server.answers = [b"$5\r\nhe"]
    asked = asyncio.ensure_future(lines.ask(COMMAND))
    await server.told.wait()
    server.lines[0].write(b"llo\r\n")
    assert await asked == b"hello"


async def test_there_are_no_more_than_so_many_at_once(server: Server, lines: Lines) -> None:
    server.answers = [None, None]
    asked = [asyncio.ensure_future(lines.ask(COMMAND)) for _ in range(2)]
    while len(server.heard) < 2:
        server.told.clear()
        await server.told.wait()
    assert not lines.has_one
    for writer in server.lines:
        writer.write(b":1\r\n")
    assert await asyncio.gather(*asked) == [1, 1]
    assert lines.has_one


async def test_a_line_in_use_when_all_are_dropped_is_closed_after_its_answer(
    server: Server, lines: Lines
) -> None:
    server.answers = [None]
    asked = asyncio.ensure_future(lines.ask(COMMAND))
    await server.told.wait()
    await lines.drop()
    server.lines[0].write(b":1\r\n")
    assert await asked == 1
    assert await lines.ask(COMMAND) == b"OK"
    assert len(server.lines) == 2
    await server.lines[0].wait_closed()  # by the other side: it reads to the end


async def test_an_answer_that_nobody_waits_for_any_more_is_passed_over(
    server: Server, lines: Lines
) -> None:
    server.answers = [None, b":2\r\n"]
    asked = asyncio.ensure_future(lines.ask(COMMAND))
    await server.told.wait()
    asked.cancel()
    server.lines[0].write(b":1\r\n")
    await server.lines[0].drain()
    await asyncio.sleep(0.01)  # until it has come here
    assert await lines.ask(COMMAND) == 2
    assert len(server.lines) == 1


async def test_a_line_that_whoever_asked_has_left_is_closed_with_the_others(
    server: Server, lines: Lines
) -> None:
    server.answers = [None]
    asked = asyncio.ensure_future(lines.ask(COMMAND))
    await server.told.wait()
    asked.cancel()
    await lines.drop()
    await server.lines[0].wait_closed()  # its end has come there


async def test_those_that_are_asked_for_at_once_all_count(server: Server, lines: Lines) -> None:
    """Whoever comes after them must find another way, also before they are under way."""
    asked = [lines.ask(COMMAND), lines.ask(COMMAND)]
    had_one = lines.has_one
    assert lines.quick(PING) is None
    assert await asyncio.gather(*asked) == [b"OK", b"OK"]
    assert (had_one, lines.has_one) == (False, True)
    assert len(server.lines) == 2


async def test_a_write_to_a_connection_that_another_call_closed_is_a_lost_connection() -> None:
    """uvloop's own words, as redis-py passes them on."""

    async def refused(text: str) -> None:
        raise RuntimeError(text)

    closed = "unable to perform operation on <TCPTransport closed=True>; the handler is closed"
    with pytest.raises(vendor.ConnectionError, match="another call has closed"):
        await heeding(refused(closed))
    with pytest.raises(RuntimeError, match="something else"):
        await heeding(refused("something else"))


async def test_a_write_over_a_writer_that_another_call_dropped_is_a_lost_connection() -> None:
    """redis-py's own failure: between its look at the connection and the write, it was closed."""

    async def other() -> None:
        raise AttributeError(name="writelines", obj=object())

    with pytest.raises(vendor.ConnectionError, match="another call has closed"):
        await heeding(VendorConnection()._send_packed_command([b"PING"]))
    with pytest.raises(AttributeError):
        await heeding(other())
