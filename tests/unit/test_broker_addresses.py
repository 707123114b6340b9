"""Addresses of brokers: what may be said in a URL, and that no secret is ever shown."""

from __future__ import annotations

import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.header import ContentHeader

from penstock.brokers.confirms import Publication, content_header
from penstock.model.errors import ConfigError
from penstock.model.message import Message
from penstock.model.topics import Topics
from penstock.ports.sink import SinkOptions
from penstock.ports.source import SourceOptions
from penstock.settings import given as settings_of
from penstock.wiring import driver_problems
from penstock.wiring import open_sink as open_route

GOOD = [
    "kafka://h:9092/topic",
    "kafka://ali:opensesame@a:1,b:2/topic?sasl=SCRAM-SHA-512&tls=true",
    "rabbitmq://ali:opensesame@h/queue",
    "rabbitmq://h:5672/vhost/queue",
    "amqp://h/%2Fodd/queue?exchange=x",
    "amqps://ali:opensesame@h/queue",
    "nats://ali:opensesame@h:4222,g:4222/a.b.c",
    "nats://token@h/a?create_topic=true&stream=s",
    "redis://:opensesame@h:6379/stream",
    "rediss://h/3/stream?maxlen=1000",
    "redis://[::1]:6379/stream",
]
BAD = [
    "kafka://h:9092",
    "kafka://h:9092/a/b",
    "kafka:///topic",
    "kafka://ali:opensesame@h:port/topic",
    "kafka://h:99999/topic",
    "kafka://h/to pic",
    "kafka://h/topic?linger=5",
    "kafka://h/topic?sasl=MAGIC",
    "kafka://h/topic?tls_ca=/nowhere.pem",
    "rabbitmq://h",
    "rabbitmq://h/a/b/c",
    "amqps://h/q?tls_ca=/nowhere.pem",
    "nats://h/",
    "nats://h/a.*",
    "nats://h/a..b",
    "redis://h/",
    "redis://h/x/y",
    "redis://a,b/s",
    "redis://h/s?maxlen=0",
    "redis://h/s?maxlen=many",
]


@pytest.mark.parametrize("url", GOOD)
async def test_a_good_address_opens_without_reaching_anybody_and_shows_no_secret(url: str) -> None:
    settings = settings_of(routes={"r": {"sink": url}})
    sink = await open_route("r", settings.routes["r"])
    assert "opensesame" not in sink.name
    await sink.close()


@pytest.mark.parametrize("url", BAD)
async def test_a_bad_address_is_an_error_that_names_the_setting_and_no_secret(url: str) -> None:
    settings = settings_of(routes={"r": {"sink": url}})
    with pytest.raises(ConfigError) as caught:
        await open_route("r", settings.routes["r"])
    assert caught.value.message.startswith("routes.r.")
    assert "opensesame" not in caught.value.message


async def test_the_addresses_of_sources_and_dead_letters_are_checked_too() -> None:
    sources = {
        "good": {"from": "nats://h/a", "dead_letter": "nats://h/b"},
        "scheme": {"from": "ftp://h/a"},
        "setting": {"from": "kafka://h/t", "prefech": 3},
        "dead": {"from": "kafka://h/t", "dead_letter": "kafka://h"},
    }
    problems = await driver_problems(settings_of(sources=sources))
    assert [problem.partition(":")[0] for problem in problems] == [
        "sources.scheme.from",
        "sources.setting.prefech",
        "sources.dead.dead_letter",
    ]


def test_a_source_needs_a_route_that_is_there() -> None:
    with pytest.raises(ConfigError, match=r"sources.s.route: no route 'push'"):
        settings_of(sources={"s": {"from": "nats://h/a", "route": "push"}})


def test_options_show_no_password() -> None:
    sink = SinkOptions(more={"password": "opensesame"})
    source = SourceOptions(source="s", more={"password": "opensesame"})
    assert "opensesame" not in repr(sink) + repr(source)


@pytest.mark.parametrize(
    ("topic", "goes_to"),
    [
        ("orders.eu", "orders.eu"),
        ("orders.", "orders."),
        ("orders.eu.vip", "own"),
        ("all.eu.vip", "all.eu.vip"),
        ("every.eu.vip", "every.eu.vip"),
        ("all", "own"),
        ("payments", "payments"),
        ("Orders.eu", "own"),
        ("payments.eu", "own"),
        ("", "own"),
        (None, "own"),
    ],
)
def test_a_message_chooses_where_a_pattern_allows_it(topic: str | None, goes_to: str) -> None:
    topics = Topics("own", ("orders.*", "payments", "all.>", "every.#"))
    message = Message(id="m", route="r", key="k", payload=b"", due=0, topic=topic)
    assert topics.of(message) == goes_to
    assert Topics("own").of(message) == "own"


_names = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=40)


@given(
    headers=st.dictionaries(_names, st.text(max_size=300), max_size=8),
    message_id=st.text(
        st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=200
    ),
    priority=st.integers(0, 9),
    body=st.binary(max_size=50),
)
def test_content_headers_are_what_amqp_libraries_read(
    headers: dict[str, str], message_id: str, priority: int, body: bytes
) -> None:
    one = Publication("q", message_id, "application/json", headers, priority, body)
    payload = content_header(one)
    frame = b"\x02\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce"
    _, channel, read = pamqp.frame.unmarshal(frame)
    assert channel == 1
    assert isinstance(read, ContentHeader)
    assert read.body_size == len(body)
    properties = read.properties
    assert properties.message_id == message_id
    assert properties.content_type == "application/json"
    assert (properties.delivery_mode, properties.priority) == (2, priority)
    assert dict(properties.headers or {}) == headers
