"""log:// writes one line a message, and the payload only when asked."""

import logging

import pytest

from penstock.model.errors import ConfigError
from penstock.ports.sink import SinkOptions
from penstock.sinks.log import open_sink
from penstock.testing.sink_suite import message


async def test_the_line_has_the_facts_and_not_the_payload(caplog: pytest.LogCaptureFixture) -> None:
    sink = await open_sink("log://", SinkOptions())
    with caplog.at_level(logging.INFO, logger="penstock.sink.log"):
        await sink.send([message(payload=b'"hush"')])
    (line,) = caplog.messages
    assert line == (
        "event=message message_id=m-1 route=suite key=key attempt=1 "
        "due=2030-01-01T00:00:00.123Z late_ms=3 size=6"
    )


async def test_the_line_says_where_the_message_belongs(caplog: pytest.LogCaptureFixture) -> None:
    sink = await open_sink("log://", SinkOptions())
    with caplog.at_level(logging.INFO, logger="penstock.sink.log"):
        await sink.send([message(headers={"x-correlation-id": "order-42"})])
    assert caplog.messages[0].endswith("correlation_id=order-42")


@pytest.mark.parametrize("url", ["log://?payload=true", "log:///?payload=1", "log:?payload=true"])
async def test_the_payload_is_written_when_asked(
    caplog: pytest.LogCaptureFixture, url: str
) -> None:
    sink = await open_sink(url, SinkOptions())
    with caplog.at_level(logging.INFO, logger="penstock.sink.log"):
        await sink.send([message(payload=b"\xffraw")])
    assert caplog.messages[0].endswith(r"payload=\xffraw")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("log://somewhere", "routes.r.sink: log:// takes no address"),
        (
            "log://?paylod=true",
            "routes.r.paylod: no such setting of a route; its driver takes: pay",
        ),
        ("log://?payload=perhaps", "routes.r.payload: expected `bool`, got `str`"),
    ],
)
async def test_a_wrong_url_is_named(url: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await open_sink(url, SinkOptions(route="r"))
    assert caught.value.message.startswith(said)


def test_options_never_show_what_may_be_secret() -> None:
    options = SinkOptions(secret="hush-1", headers={"a": "hush-2"}, more={"password": "hush-3"})
    assert "hush" not in repr(options)
