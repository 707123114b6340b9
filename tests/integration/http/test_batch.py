from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from penstock.api.http import batch
from penstock.api.http.batch import MAX_UNREADABLE
from penstock.model.errors import StoreUnavailable
from tests.integration.http.conftest import Running, Serve

NDJSON = {"content-type": "application/x-ndjson"}
JSON = {"content-type": "application/json"}


def lines(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


def codes(items: list[dict[str, object]]) -> list[object]:
    """Of each item its error's code, or whether it is a duplicate."""
    return [item["error"]["code"] if "error" in item else item["duplicate"] for item in items]  # type: ignore[index]


async def test_an_array_is_answered_with_an_array_in_order(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/messages/batch", json=[{"id": "a"}, {"id": "b"}])
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert [item["id"] for item in answer.json()] == ["a", "b"]


async def test_lines_are_answered_with_lines_in_order(client: httpx.AsyncClient) -> None:
    body = b'{"id":"a"}\r\n\n  \n{"id":"b"}'
    answer = await client.post("/v1/messages/batch", content=body, headers=NDJSON)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.content.endswith(b"}\n")
    assert [item["id"] for item in lines(answer)] == ["a", "b"]


@pytest.mark.parametrize("body", [b"[]", b" [ ] "])
async def test_an_empty_array_is_answered_with_one(client: httpx.AsyncClient, body: bytes) -> None:
    answer = await client.post("/v1/messages/batch", content=body, headers=JSON)
    assert answer.status_code == 200
    assert answer.content.strip() == b"[]"


@pytest.mark.parametrize("body", [b"", b"\n", b" \r\n\n"])
async def test_lines_without_a_message_are_malformed(
    client: httpx.AsyncClient, body: bytes
) -> None:
    answer = await client.post("/v1/messages/batch", content=body, headers=NDJSON)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "malformed"


async def test_the_same_id_twice_in_one_batch_is_one_message(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/messages/batch", json=[{"id": "a"}, {"id": "a"}])
    assert codes(answer.json()) == [False, True]


async def test_each_bad_item_has_its_own_error_and_the_good_are_kept(
    client: httpx.AsyncClient,
) -> None:
    items: list[object] = [
        {"id": "good"},
        {"id": "bad", "route": "nowhere"},
        {"id": "bad", "at": "2040-01-01T00:00:00"},
        {"id": "bad", "colour": "red"},
        7,
        "text",
        [{"id": "nested"}],
        {"id": "also good", "payload": {"braces": '}]{["\\'}},
    ]
    for answer, outcomes in (
        ((a := await client.post("/v1/messages/batch", json=items)), a.json()),
        (
            (
                b := await client.post(
                    "/v1/messages/batch",
                    content="\n".join(json.dumps(item) for item in items),
                    headers=NDJSON,
                )
            ),
            lines(b),
        ),
    ):
        assert answer.status_code == 207
        assert codes(outcomes)[1:7] == ["unknown_route", *["invalid"] * 5]
        assert [outcome["id"] for outcome in outcomes[:3]] == ["good", "bad", "bad"]
        assert "error" not in outcomes[0]
        assert "error" not in outcomes[7]
    held = (await client.get("/v1/messages/also%20good")).json()
    assert held["payload"] == {"braces": '}]{["\\'}


async def test_a_line_that_is_not_json_is_that_lines_error(client: httpx.AsyncClient) -> None:
    body = b'{"id":"a"}\n{"id":\n\xff\xfe\n' + b"[" * 100_000 + b'\n{"id":"b"}\n{"id":"cut'
    answer = await client.post("/v1/messages/batch", content=body, headers=NDJSON)
    assert answer.status_code == 207
    assert codes(lines(answer)) == [False, *["malformed"] * 2, "invalid", False, "malformed"]


async def test_a_line_too_long_is_that_lines_error(serve: Serve) -> None:
    async with serve(api={"max_body": 2000}) as running, running.client() as client:
        long = b'{"id":"long","payload":"' + b"x" * 300_000 + b'"}'
        for body in (
            b'{"id":"a"}\n' + long + b'\n{"id":"b"}\n',
            long + b'\n{"id":"a"}\n{"id":"b"}\n' + long,
        ):
            answer = await client.post("/v1/messages/batch", content=body, headers=NDJSON)
            assert answer.status_code == 207
            assert sorted(str(code) for code in codes(lines(answer))) in (
                ["False", "False", "too_large"],
                ["True", "True", "too_large", "too_large"],
            )


async def test_an_element_too_long_is_that_elements_error(serve: Serve) -> None:
    async with serve(api={"max_body": 2000}) as running, running.client() as client:
        many = ",".join(str(number) for number in range(100_000))
        body = f'[{{"id":"a"}}, {{"id":"long","payload":[{many}]}}, {{"id":"b"}}]'
        answer = await client.post("/v1/messages/batch", content=body, headers=JSON)
        assert answer.status_code == 207
        assert codes(answer.json()) == [False, "too_large", False]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"id":"a"}',
        b"null",
        b"7",
        b'"[]"',
        b"[",
        b"]",
        b"[,]",
        b"[] []",
        b"\xff",
        b"[}",
    ],
)
async def test_what_is_no_array_is_malformed(client: httpx.AsyncClient, body: bytes) -> None:
    answer = await client.post("/v1/messages/batch", content=body, headers=JSON)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "malformed"


@pytest.mark.parametrize("tail", [b"", b",", b',{"id":"b"', b",,]", b"]x", b',{"id":"unended'])
async def test_an_array_that_breaks_off_keeps_what_came_before(
    client: httpx.AsyncClient, tail: bytes
) -> None:
    body = b'[{"id":"a"},{"id":"c"}' + tail
    answer = await client.post("/v1/messages/batch", content=body, headers=JSON)
    assert answer.status_code == 207
    outcomes = codes(answer.json())
    assert outcomes[0] is False
    assert outcomes[-1] == "malformed"
    assert (await client.get("/v1/messages/a")).status_code == 200


async def test_a_batch_goes_to_the_store_in_chunks(
    running: Running, client: httpx.AsyncClient
) -> None:
    body = "".join(f'{{"id":"m{number}"}}\n' for number in range(1200))
    answer = await client.post("/v1/messages/batch", content=body, headers=NDJSON)
    assert len(lines(answer)) == 1200
    assert running.probe.puts == [500, 500, 200]


async def test_any_length_is_taken_beyond_the_limit_of_a_body(serve: Serve) -> None:
    async with serve(api={"max_body": 4096}) as running, running.client() as client:

        async def body() -> AsyncIterator[bytes]:
            for number in range(200):
                piece = "".join(f'{{"id":"{number}-{inner}"}}\n' for inner in range(100))
                yield piece.encode()

        answer = await client.post("/v1/messages/batch", content=body(), headers=NDJSON)
        outcomes = lines(answer)
        assert answer.status_code == 200
        assert [outcome["id"] for outcome in outcomes] == [
            f"{number}-{inner}" for number in range(200) for inner in range(100)
        ]


async def test_nothing_is_answered_before_it_is_durable(
    running: Running, client: httpx.AsyncClient
) -> None:
    running.probe.gate.clear()
    call = asyncio.create_task(client.post("/v1/messages/batch", json=[{"id": "a"}]))
    await running.probe.called.wait()
    assert not call.done()
    running.probe.gate.set()
    assert (await call).status_code == 200


async def test_a_store_that_is_away_is_told_item_by_item(
    running: Running, client: httpx.AsyncClient
) -> None:
    running.probe.fails = StoreUnavailable("the disk is full")
    body = [{"id": "a"}, {"id": "b", "route": "nowhere"}]
    answer = await client.post("/v1/messages/batch", json=body)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert codes(answer.json()) == ["store_unavailable", "store_unavailable"]


async def test_a_client_that_leaves_in_the_middle_leaves_whole_chunks(
    running: Running, client: httpx.AsyncClient
) -> None:
    head = (
        b"POST /v1/messages/batch HTTP/1.1\r\nhost: localhost\r\n"
        b"content-type: application/x-ndjson\r\ncontent-length: 1000000\r\n\r\n"
    )
    _, writer = await running.connect()
    writer.write(head + b"".join(b'{"id":"m%d"}\n' % number for number in range(700)))
    await writer.drain()
    await running.probe.called.wait()
    writer.transport.abort()
    assert (await client.get("/v1/messages/m499")).status_code == 200
    assert (await client.get("/healthz")).status_code == 200


async def test_a_batch_of_another_type_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post(
        "/v1/messages/batch", content=b"id\n1", headers={"content-type": "text/csv"}
    )
    assert answer.status_code == 415


async def test_the_horizon_holds_on_every_way_in(serve: Serve) -> None:
    limits = {"min_delay": "1m", "max_delay": "15d"}
    async with serve(limits=limits) as running, running.client() as client:
        one = await client.post("/v1/messages", json={"delay": "59s"})
        assert (one.status_code, one.json()["error"]["field"]) == (422, "delay")
        messages = [{"delay": "16d"}, {"at": "2999-01-01T00:00:00Z"}, {"delay": "1h"}]
        many = (await client.post("/v1/messages/batch", json=messages)).json()
        assert [item.get("error", {}).get("field") for item in many] == ["delay", "at", None]
        tick = await client.post("/ticks", json={"item": "a", "at": "2020-01-01T00:00:00Z"})
        assert (tick.status_code, tick.json()["error"]["field"]) == (422, "at")


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"[" + b"1," * 100_000 + b"1]", JSON),
        (b"1\n" * 100_000, NDJSON),
        (b"{}x\n" * 2_000, NDJSON),
    ],
)
async def test_what_is_no_batch_at_all_is_not_read_to_its_end(
    client: httpx.AsyncClient, body: bytes, headers: dict[str, str]
) -> None:
    answer = await client.post("/v1/messages/batch", content=body, headers=headers)
    assert answer.status_code == 207
    outcomes = answer.json() if headers is JSON else lines(answer)
    assert len(outcomes) == MAX_UNREADABLE + 1
    assert outcomes[-1]["error"]["code"] == "malformed"
    assert "1,000 items in a row could not be read" in outcomes[-1]["error"]["message"]
    assert (await client.post("/v1/messages/batch", json=[{"id": "a"}])).status_code == 200


async def test_messages_that_are_refused_for_what_they_say_are_no_end(
    client: httpx.AsyncClient,
) -> None:
    body = b'{"route":"nowhere"}\n' * 2_500 + b'{"id":"last"}\n'
    answer = await client.post("/v1/messages/batch", content=body, headers=NDJSON)
    outcomes = lines(answer)
    assert len(outcomes) == 2_501
    assert outcomes[-1]["id"] == "last"


async def test_outcomes_are_not_many_times_as_long_as_their_body(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "SPOOL_FREE", 200_000)
    body = (b"1\n" * 900 + b"{}\n") * 100
    answer = await client.post("/v1/messages/batch", content=body, headers=NDJSON)
    assert answer.status_code == 207
    assert len(answer.content) < (batch.SPOOL_RATIO + 1) * len(body)
    assert "times as long as the body" in lines(answer)[-1]["error"]["message"]


async def test_brackets_without_end_are_refused(client: httpx.AsyncClient) -> None:
    body = b"[" + b'{"payload":' + b"[" * 4_000_000
    answer = await client.post("/v1/messages/batch", content=body, headers=JSON)
    assert answer.status_code == 400
    assert "nested more than 1,000 deep" in answer.json()["error"]["message"]
