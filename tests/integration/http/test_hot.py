"""Both ways in give the same bytes; the hot one shares transactions and keeps its order."""

from __future__ import annotations

import asyncio
import re

import pytest

from penstock.api.http.hot import HotRoutes
from penstock.model.errors import StoreUnavailable
from tests.integration.http.conftest import Running, Serve
from tests.integration.http.segments import reads_counted

FAR = b'"at":"2040-01-01T00:00:00Z"'
MESSAGE = b'{"id":"%d",' + FAR + b"}"
TYPE = b"content-type: application/json\r\n"
HOST = b"host: localhost\r\n"

GOOD_AND_BAD: list[tuple[bytes, bytes, bytes]] = [
    # path, headers, body
    (b"/v1/messages", HOST + TYPE, b'{"id":"same",' + FAR + b"}"),
    (b"/v1/messages", HOST + TYPE, b'{"id":"same","route":"nowhere"}'),
    (b"/v1/messages", HOST + TYPE, b'{"id":"' + b"x" * 201 + b'"}'),
    (b"/v1/messages", HOST + TYPE, b'{"id":"a\\u0000b"}'),
    (b"/v1/messages", HOST + TYPE, b'{"at":"2040-01-01T00:00:00"}'),
    (b"/v1/messages", HOST + TYPE, b'{"at":"0001-01-01T00:00:00Z"}'),
    (b"/v1/messages", HOST + TYPE, b'{"at":"9999-12-31T23:59:59-23:59"}'),
    (b"/v1/messages", HOST + TYPE, b'{"delay":1e300}'),
    (b"/v1/messages", HOST + TYPE, b'{"delay":-1}'),
    (b"/v1/messages", HOST + TYPE, b'{"delay":true}'),
    (b"/v1/messages", HOST + TYPE, b'{"priority":"9"}'),
    (b"/v1/messages", HOST + TYPE, b'{"priority":123456789012345678901234567890}'),
    (b"/v1/messages", HOST + TYPE, b'{"headers":{"a\\n":"b"}}'),
    (b"/v1/messages", HOST + TYPE, b'{"headers":{"a":"b\\r\\nc: d"}}'),
    (b"/v1/messages", HOST + TYPE, b'{"payload":"\xff"}'),
    (b"/v1/messages", HOST + TYPE, b'{"id":"\xff"}'),
    (b"/v1/messages", HOST + TYPE, b'{"payload":' + b"[" * 50_000),
    (b"/v1/messages", HOST + TYPE, b'{"payload":' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
    (b"/v1/messages", HOST + TYPE, b'{"payload":"' + b"x" * 300_000 + b'"}'),
    (b"/v1/messages", HOST + TYPE, b'{"payload_base64":"?"}'),
    (b"/v1/messages", HOST + TYPE, b"{"),
    (b"/v1/messages", HOST + TYPE, b""),
    (b"/v1/messages", HOST + TYPE, b"[]"),
    (b"/v1/messages", HOST + TYPE, b"\x00" * 100),
    (b"/v1/messages", HOST + b"content-type: APPLICATION/JSON; charset=utf-8\r\n", b"[]"),
    (b"/v1/messages", HOST + b"content-type: text/plain\r\n", b"{}"),
    (b"/v1/messages", HOST, b"{}"),
    (b"/v1/messages", TYPE, b"{}"),
    (b"/v1/messages", b"host: evil.example\r\n" + TYPE, b"{}"),
    (b"/v1/messages", b"host: a b\r\n" + TYPE, b"{}"),
    (b"/v1/messages", HOST + TYPE + b"origin: http://evil.example\r\n", b"{}"),
    (b"/v1/messages", HOST + TYPE + b"origin: null\r\n", b"{}"),
    (b"/v1/messages", HOST + TYPE + b"connection: close\r\n", b"[]"),
    (b"/ticks", HOST + TYPE, b'{"item":"u"}'),
    (b"/ticks", HOST + TYPE, b'{"item":"","at":"2040-01-01T00:00:00Z"}'),
    (b"/ticks", HOST + TYPE, b'{"item":"u","at":"tomorrow"}'),
    (b"/ticks", HOST + TYPE, b"7"),
    (b"/tick", HOST + TYPE, b"7"),
    (b"/tick", HOST, b"7"),
    (b"/ticks", HOST + b"content-type: text/plain\r\n", b"{}"),
    (b"/ticks", HOST + b"origin: http://localhost\r\n", b"{}"),
    (b"/ticks", HOST + b"origin: http://evil.example\r\n", b"{}"),
    (b"/ticks", HOST + b"origin: null\r\n", b"{}"),
    (b"/ticks", HOST, b" " * 70_000),
]


def hot(path: bytes, headers: bytes, body: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n%b" % (path, headers, len(body), body)


def chunked(path: bytes, headers: bytes, body: bytes) -> bytes:
    chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
    return b"POST %b HTTP/1.1\r\n%btransfer-encoding: chunked\r\n\r\n%b0\r\n\r\n" % (
        path,
        headers,
        chunk,
    )


def with_query(path: bytes, headers: bytes, body: bytes) -> bytes:
    return hot(path + b"?", headers, body)


async def exchange(running: Running, request: bytes) -> bytes:
    """One answer, whole, without its date."""
    reader, writer = await running.connect()
    writer.write(request)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 300)
    length = re.search(rb"content-length: (\d+)", head)
    assert length is not None
    body = await reader.readexactly(int(length[1]))
    writer.close()
    return re.sub(rb"date: [^\r]+", b"date: -", head) + body


@pytest.mark.parametrize("number", range(len(GOOD_AND_BAD)))
async def test_both_ways_give_the_same_bytes(running: Running, number: int) -> None:
    path, headers, body = GOOD_AND_BAD[number]
    if number == 0:
        await exchange(running, hot(path, headers, body))  # a duplicate from now on
    answers = [
        await exchange(running, way(path, headers, body))
        for way in (hot, hot, chunked, with_query)  # the second time its head is known
    ]
    assert len(set(answers)) == 1
    assert answers[0].startswith(b"HTTP/1.1 200 " if number == 0 else b"HTTP/1.1 4")


async def test_both_ways_create_alike(running: Running) -> None:
    shapes = set()
    for number, way in enumerate((hot, chunked, with_query)):
        body = b'{"id":"new%d",' % number + FAR + b"}"
        answer = await exchange(running, way(b"/v1/messages", HOST + TYPE, body))
        shapes.add(answer.replace(b"new%d" % number, b"new"))
    (shape,) = shapes
    assert shape.startswith(b"HTTP/1.1 201 Created\r\n")


PATH_AND_TYPE = (b"/v1/messages", HOST + TYPE)
OFFER = b"connection: upgrade, http2-settings\r\nhttp2-settings: AA\r\nupgrade: h2c\r\n"


async def test_the_same_bytes_are_answered_alike_on_both_ways(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole catalogue, to a server with a hot way and to one without it."""
    asked = [way(*each) for each in GOOD_AND_BAD for way in (hot, hot, chunked, with_query)]
    for path, headers, body in GOOD_AND_BAD:
        asked += [hot(path, OFFER + headers, body), chunked(path, OFFER + headers, body)]
    for path, body in VISITORS:
        asked += [hot(path, HOST + TYPE, body), hot(path, OFFER + HOST + TYPE, body)]
    for user in (b"ann", b"bob", b"%ff", b"an%6e", b"ann/", b"/ann"):
        asked.append(b"GET /v1/rooms/sale/tickets/%b HTTP/1.1\r\n%b\r\n" % (user, HOST))
    answers = []
    for has_hot_way in (True, False):
        if not has_hot_way:
            monkeypatch.setattr(HotRoutes, "find", lambda *_: None)
        async with serve() as running, running.client() as client:
            await client.put("/v1/rooms/sale", json={"capacity": 0, "lanes": {"vip": 2}})
            answers.append([_lasting(await exchange(running, each)) for each in asked])
    for request, quick, ordinary in zip(asked, *answers, strict=True):
        assert quick == ordinary, request[:1_000]


def _lasting(answer: bytes) -> bytes:
    """Without moments, secrets and ids that were made."""
    answer = re.sub(rb'"(ticket|id)":"[^"]{20,}"', rb'"\1":"-"', answer)
    answer = re.sub(rb"content-length: \d+", b"content-length: -", answer)
    return re.sub(rb"20[0-9-]{8}T[0-9:.]+Z", b"-", answer)


VISITORS: list[tuple[bytes, bytes]] = [
    # path, body
    (b"/v1/rooms/sale/join", b'{"user":"ann"}'),
    (b"/v1/rooms/sale/join", b'{"user":"ann","lane":"vip"}'),
    (b"/v1/rooms/sale/join", b'{"user":"bea","lane":"nowhere"}'),
    (b"/v1/rooms/sale/join", b'{"user":"cy","instance":""}'),
    (b"/v1/rooms/sale/join", b'{"user":""}'),
    (b"/v1/rooms/sale/join", b'{"nobody":1}'),
    (b"/v1/rooms/sale/join", b"["),
    (b"/v1/rooms/nowhere/join", b'{"user":"ann"}'),
    (b"/v1/rooms/no%20room/join", b'{"user":"ann"}'),
    (b"/v1/rooms/%ff/join", b'{"user":"ann"}'),
]


async def test_both_ways_serve_visitors_alike(running: Running) -> None:
    async with running.client() as client:
        await client.put("/v1/rooms/sale", json={"capacity": 0, "lanes": {"vip": 2}})
        await client.post("/v1/rooms/sale/join", json={"user": "ann"})
    for path, body in VISITORS:
        asked = [way(path, HOST + TYPE, body) for way in (hot, hot, chunked)]
        answers = {await exchange(running, request) for request in asked}
        assert len(answers) == 1, path
    running.server.known.clear()
    for path in (b"sale/tickets/ann", b"sale/tickets/bob", b"x/tickets/y", b"sale/tickets/%ff"):
        request = b"GET /v1/rooms/%b HTTP/1.1\r\n%b" % (path, HOST)
        asked = [request + b"\r\n", request + b"content-length: 0\r\n\r\n"]
        answers = {await exchange(running, each) for each in asked}
        assert len(answers) == 1, path
    assert not running.server.known, "every visitor's GET is another: none is remembered"


async def test_a_visitor_without_a_token_is_treated_the_same_both_ways(serve: Serve) -> None:
    async with serve(api={"tokens": ["admin"]}) as running:
        async with running.client() as client:
            headers = {"authorization": "Bearer admin"}
            for room, public in (("open", True), ("shut", False)):
                settings = {"capacity": 0, "public": public}
                await client.put(f"/v1/rooms/{room}", json=settings, headers=headers)
                await client.post(f"/v1/rooms/{room}/join", json={"user": "ann"}, headers=headers)
        for path, status in ((b"/v1/rooms/open/join", 409), (b"/v1/rooms/shut/join", 401)):
            asked = [way(path, HOST + TYPE, b'{"user":"ann"}') for way in (hot, chunked)]
            answers = [await exchange(running, request) for request in asked]
            assert answers[0] == answers[1]
            assert answers[0].startswith(b"HTTP/1.1 %d " % status)
            assert b'"ticket":' not in answers[0], "a name is not a proof"


async def test_both_ways_ask_for_the_same_token(serve: Serve) -> None:
    tokens = [{"secret": "reader", "scope": "read"}, {"secret": "writer", "scope": "write"}]
    async with serve(api={"tokens": tokens}) as running:
        for given, status in ((b"", 401), (b"reader", 403), (b"nobody", 401), (b"writer", 422)):
            headers = HOST + TYPE + (b"authorization: Bearer %b\r\n" % given if given else b"")
            answers = [
                await exchange(running, way(b"/v1/messages", headers, b"[]"))
                for way in (hot, chunked)
            ]
            assert answers[0] == answers[1]
            assert answers[0].startswith(b"HTTP/1.1 %d " % status)


async def test_both_ways_tell_that_the_store_is_away(running: Running) -> None:
    running.probe.fails = StoreUnavailable("the disk is full", retry_after=2.5)
    answers = [
        await exchange(running, way(b"/v1/messages", HOST + TYPE, b"{}")) for way in (hot, chunked)
    ]
    assert answers[0] == answers[1]
    assert answers[0].startswith(b"HTTP/1.1 503 ")
    assert b"\r\nretry-after: 3\r\n" in answers[0]


async def test_both_ways_tell_of_an_unexpected_fault_only_that_it_happened(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    running.probe.fails = RuntimeError("a secret detail")
    answers = [
        await exchange(running, way(b"/v1/messages", HOST + TYPE, b"{}")) for way in (hot, chunked)
    ]
    assert answers[0] == answers[1]
    assert answers[0].startswith(b"HTTP/1.1 5")
    assert b"secret" not in answers[0]
    assert "a secret detail" in caplog.text


async def test_many_connections_share_one_transaction(running: Running) -> None:
    running.probe.gate.clear()
    first = asyncio.create_task(
        exchange(running, hot(b"/v1/messages", HOST + TYPE, b'{"id":"first"}'))
    )
    await running.probe.called.wait()
    # Everything that comes while the store is busy with a few calls waits for the next one.
    others = [
        asyncio.create_task(exchange(running, hot(b"/v1/messages", HOST + TYPE, MESSAGE % number)))
        for number in range(200)
    ]
    while running.server.api.in_flight < 201:  # noqa: ASYNC110 - no event says so
        await asyncio.sleep(0.001)
    running.probe.gate.set()
    answers = await asyncio.gather(first, *others)
    assert all(answer.startswith(b"HTTP/1.1 201 ") for answer in answers)
    assert sum(running.probe.puts) == 201
    assert len(running.probe.puts) <= 10
    assert running.server.api.in_flight == 0


async def test_pipelined_requests_are_answered_in_order(running: Running) -> None:
    requests = [hot(b"/v1/messages", HOST + TYPE, b'{"id":"p%d"}' % n) for n in range(20)]
    requests[5] = b"GET /healthy HTTP/1.1\r\n" + HOST + b"\r\n"
    requests[9] = chunked(b"/v1/messages", HOST + TYPE, b'{"id":"p9"}')
    requests.append(b"GET /v1/messages/p19 HTTP/1.1\r\nconnection: close\r\n" + HOST + b"\r\n")
    answer = await running.send(b"".join(requests))
    bodies = re.findall(rb"\r\n\r\n(\{.*?\})(?=HTTP|$)", answer)
    assert len(bodies) == 21
    named = [re.match(rb'\{"id":"(p\d+)"', body) for body in bodies]
    assert [match and match[1] for match in named] == [
        None if n == 5 else b"p%d" % min(n, 19) for n in range(21)
    ]


async def test_pipelined_requests_cut_anywhere_are_answered_in_order(running: Running) -> None:
    requests = (
        b"".join(hot(b"/v1/messages", HOST + TYPE, b'{"id":"c%d"}' % n) for n in range(5))
        + b"GET /healthy HTTP/1.1\r\nconnection: close\r\n"
        + HOST
        + b"\r\n"
    )
    for size in (1, 7, 50, 133, 200):
        reader, writer = await running.connect()
        for start in range(0, len(requests), size):
            writer.write(requests[start : start + size])
            await asyncio.sleep(0)
        answer = await asyncio.wait_for(reader.read(), 300)
        writer.close()
        assert re.findall(rb'"id":"(c\d)"', answer) == [b"c%d" % n for n in range(5)]
        assert answer.endswith(b'{"status":"ok"}')


async def test_known_heads_mix_with_anything_on_one_connection(running: Running) -> None:
    put = [hot(b"/v1/messages", HOST + TYPE, b'{"id":"k%d"}' % n) for n in range(8)]
    look = b"GET /healthy HTTP/1.1\r\n" + HOST + b"\r\n"
    reader, writer = await running.connect()

    async def say(data: bytes, answers: int) -> list[bytes]:
        writer.write(data)
        return [await answer_of(reader) for _ in range(answers)]

    await say(put[0], 1)
    assert len(running.server.known) == 1
    assert await say(put[1], 1) == [b"k1"]
    assert await say(look, 1) == [b""]
    assert await say(put[2] + put[3], 2) == [b"k2", b"k3"]  # the head is known, more comes with it
    assert await say(put[4] + look[:20], 1) == [b"k4"]
    assert await say(look[20:], 1) == [b""]
    assert await say(put[5][:-3], 0) == []  # all but the end of its body
    assert await say(put[5][-3:], 1) == [b"k5"]
    assert await say(b"\r\n" + put[6], 1) == [b"k6"]  # an empty line before it is allowed
    assert await say(put[7], 1) == [b"k7"]
    writer.close()


def one_chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


CHUNKED_HEAD = (
    b"POST /v1/messages HTTP/1.1\r\n" + HOST + TYPE + b"transfer-encoding: chunked\r\n\r\n"
)


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_wherever_a_known_request_is_cut_it_is_taken(
    running: Running, monkeypatch: pytest.MonkeyPatch, *, is_chunked: bool
) -> None:
    def request_(name: bytes) -> bytes:
        body = b'{"id":"%b",%b}' % (name, FAR)
        return CHUNKED_HEAD + one_chunk(body) if is_chunked else hot(*PATH_AND_TYPE, body)

    with reads_counted(monkeypatch) as reads:
        reader, writer = await running.connect()

        async def say(*pieces: bytes) -> bytes:
            for piece in pieces:
                until = reads.size + len(piece)
                writer.write(piece)
                await reads.reach(until)
            return await answer_of(reader)

        assert await say(request_(b"head")) == b"head"
        (head,) = running.server.known
        whole = request_(b"c000")
        for cut in range(1, len(whole)):
            name = b"c%03d" % cut
            request = request_(name)
            assert await say(request[:cut], request[cut:]) == name
            for late in range(cut + 1, min(cut + 3, len(whole))):
                assert await say(request[:cut], request[cut:late], request[late:]) == name
        assert list(running.server.known) == [head]
        writer.close()


ODD_CHUNKS = [
    b"2\r\n{}\r\n0\r\nx-trailer: 1\r\n\r\n",
    b"2;ext=1\r\n{}\r\n0\r\n\r\n",
    b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
    b"002\r\n{}\r\n0\r\n\r\n",
    b"2\r\n{}\r\n00\r\n\r\n",
    b"0\r\n\r\n",
    b"+2\r\n{}\r\n0\r\n\r\n",
    b"0x2\r\n{}\r\n0\r\n\r\n",
    b"2\n{}\n0\n\n",
    b"3\r\n{}\r\n0\r\n\r\n" + b"2\r\n{}\r\n0\r\n\r\n",
    b"2\r\n{}\r\n0\r\n\r\n" + b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    b"%x\r\n%b\r\n0\r\n\r\n" % (20_000, b" " * 19_998 + b"{}"),
]


@pytest.mark.parametrize("number", range(len(ODD_CHUNKS)))
async def test_chunks_behind_a_known_head_are_read_as_behind_a_new_one(
    running: Running, number: int
) -> None:
    chunks = ODD_CHUNKS[number]
    new = CHUNKED_HEAD.replace(HOST, HOST + b"x-new: 1\r\n")
    first = await told(running, new + chunks)
    await exchange(running, CHUNKED_HEAD + one_chunk(b"{}"))
    assert CHUNKED_HEAD in running.server.known
    assert await told(running, CHUNKED_HEAD + chunks) == first


async def told(running: Running, request_: bytes) -> list[bytes]:
    """The statuses of every answer until the server has nothing more to say."""
    reader, writer = await running.connect()
    end = b"GET /healthz?end HTTP/1.1\r\nconnection: close\r\n" + HOST + b"\r\n"
    writer.write(request_)
    writer.write(end)
    answers = await asyncio.wait_for(reader.read(), 300)
    writer.close()
    return re.findall(rb"HTTP/1.1 (\d+)", answers)


async def test_a_head_that_the_parser_ends_elsewhere_is_not_known(running: Running) -> None:
    odd = b"POST /v1/messages HTTP/1.1\n" + HOST + TYPE + b"content-length: 8\n\n{}\r\n\r\n  "
    await told(running, odd)
    assert not [head for head in running.server.known if b"{}" in head]


async def test_a_known_head_whose_body_does_not_come_is_408(serve: Serve) -> None:
    async with serve(api={"body_timeout": "200ms"}) as running:
        put = hot(*PATH_AND_TYPE, MESSAGE % 1)
        await exchange(running, put)
        reader, writer = await running.connect()
        writer.write(put[:-3])
        answer = await asyncio.wait_for(reader.read(), 300)
        assert answer.startswith(b"HTTP/1.1 408 ")
        writer.close()


async def answer_of(reader: asyncio.StreamReader) -> bytes:
    """The id in the next answer."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 300)
    length = re.search(rb"content-length: (\d+)", head)
    assert length is not None
    named = re.match(rb'\{"id":"(\w+)"', await reader.readexactly(int(length[1])))
    return b"" if named is None else named[1]


async def test_only_heads_that_were_let_through_are_known(serve: Serve) -> None:
    async with serve(api={"tokens": [{"secret": "writer", "scope": "write"}]}) as running:
        for given, status in (
            (b"nobody", 401),
            (b"writer", 201),
            (b"nobody", 401),
            (b"writer", 201),
        ):
            headers = HOST + TYPE + b"authorization: Bearer %b\r\n" % given
            answer = await exchange(running, hot(b"/v1/messages", headers, b"{}"))
            assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert [b"writer" in head for head in running.server.known] == [True]
        for more in (b"connection: close\r\n", b"x: " + b"y" * 2_000 + b"\r\n"):
            await exchange(running, hot(b"/v1/messages", headers + more, b"{}"))
        assert len(running.server.known) == 1


async def test_few_heads_are_known(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.api.http.hot.MAX_KNOWN", 4)
    for number in range(10):
        more = HOST + TYPE + b"x: %d\r\n" % number
        answer = await exchange(running, hot(b"/v1/messages", more, b"{}"))
        assert answer.startswith(b"HTTP/1.1 201 ")
        assert len(running.server.known) <= 4


async def test_a_connection_stays_open_unless_asked_to_close(running: Running) -> None:
    reader, writer = await running.connect()
    for number in range(3):
        writer.write(hot(b"/v1/messages", HOST + TYPE, MESSAGE % number))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"connection: close" not in head
        await reader.readuntil(b"}")
    writer.write(hot(b"/v1/messages", HOST + TYPE + b"connection: close\r\n", MESSAGE % 7))
    rest = await asyncio.wait_for(reader.read(), 300)
    assert b"\r\nconnection: close\r\n" in rest
    writer.close()


async def test_a_client_that_leaves_has_its_message_kept_and_harms_nobody(
    running: Running,
) -> None:
    running.probe.gate.clear()
    _, writer = await running.connect()
    writer.write(hot(b"/v1/messages", HOST + TYPE, b'{"id":"left"}'))
    await running.probe.called.wait()
    writer.transport.abort()
    other = asyncio.create_task(
        exchange(running, hot(b"/v1/messages", HOST + TYPE, b'{"id":"other"}'))
    )
    await asyncio.sleep(0)
    running.probe.gate.set()
    assert (await other).startswith(b"HTTP/1.1 201 ")
    (kept,) = await running.parts.store.messages.find(["left"])
    assert kept is not None
    assert running.server.api.in_flight == 0


async def test_too_many_unanswered_are_told_to_come_again(serve: Serve) -> None:
    async with serve(max_in_flight=2) as running:
        running.probe.gate.clear()
        waiting = [
            asyncio.create_task(
                exchange(running, hot(b"/v1/messages", HOST + TYPE, MESSAGE % number))
            )
            for number in range(2)
        ]
        while running.server.api.in_flight < 2:  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.001)
        refused = [
            await exchange(running, way(b"/v1/messages", HOST + TYPE, b"{}"))
            for way in (hot, chunked)
        ]
        assert refused[0] == refused[1]
        assert refused[0].startswith(b"HTTP/1.1 429 ")
        assert b"\r\nretry-after: 1\r\n" in refused[0]
        running.probe.gate.set()
        for answer in await asyncio.gather(*waiting):
            assert answer.startswith(b"HTTP/1.1 201 ")


async def test_a_body_that_comes_in_pieces_is_put_together(running: Running) -> None:
    payload = b"x" * 200_000
    body = b'{"id":"large","payload":"' + payload + b'"}'
    answer = await exchange(running, hot(b"/v1/messages", HOST + TYPE, body))
    assert answer.startswith(b"HTTP/1.1 201 ")
    (held,) = await running.parts.store.messages.find(["large"])
    assert held is not None
    assert held.payload == b'"' + payload + b'"'
