"""What our connection relies on in uvicorn, of which some is not documented.

`dependencies` allows a range of versions. Where a new one changes something of this, the test
that fails names it before a connection does.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import httptools
import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

CONFIG = [
    "http", "ws", "lifespan", "log_config", "access_log", "proxy_headers", "server_header",
    "headers", "ssl_context_factory",
]  # fmt: skip
CALLBACKS = [
    "connection_made", "data_received", "on_message_begin", "on_header", "on_headers_complete",
    "on_body", "on_message_complete", "on_response_complete", "shutdown", "pause_writing",
    "resume_writing", "_start_asgi_task",
]  # fmt: skip
STATE = [
    "client", "connections", "cycle", "flow", "parser", "pipeline", "server_state", "tasks",
    "transport",
]  # fmt: skip
FLOW = ["pause_reading", "resume_reading", "read_paused", "write_paused"]
SERVER = ["capture_signals", "startup", "main_loop", "shutdown"]


async def _app(_scope: Any, _receive: Any, _send: Any) -> None: ...


@pytest.fixture
def config() -> uvicorn.Config:
    config = uvicorn.Config(_app, lifespan="off", log_config=None, headers=[("x-a", "b")])
    config.load()
    return config


@pytest.fixture
async def protocol(config: uvicorn.Config) -> HttpToolsProtocol:
    return HttpToolsProtocol(config, ServerState(), {}, asyncio.get_running_loop())


def test_a_configuration_takes_what_we_give_it() -> None:
    assert set(CONFIG) <= set(inspect.signature(uvicorn.Config.__init__).parameters)


def test_headers_of_every_answer_are_encoded_once(config: uvicorn.Config) -> None:
    assert (b"x-a", b"b") in config.encoded_headers


def test_a_server_has_the_steps_that_ours_replaces(config: uvicorn.Config) -> None:
    server = uvicorn.Server(config)
    assert [name for name in SERVER if not callable(getattr(server, name, None))] == []
    assert server.started is False
    assert vars(server.server_state).keys() >= {
        "connections", "tasks", "total_requests", "default_headers",
    }  # fmt: skip


async def test_a_connection_has_the_callbacks_that_ours_overrides(
    protocol: HttpToolsProtocol,
) -> None:
    assert [name for name in CALLBACKS if not callable(getattr(protocol, name, None))] == []
    assert isinstance(protocol.parser, httptools.HttpRequestParser)


async def test_a_connection_keeps_its_state_under_the_names_we_read(
    protocol: HttpToolsProtocol,
) -> None:
    assert [name for name in STATE if not hasattr(protocol, name)] == []
    assert vars(protocol)["cycle"] is None  # until the first request
    assert len(protocol.pipeline) == 0


async def test_the_flow_of_a_connection_can_be_stopped(protocol: HttpToolsProtocol) -> None:
    from uvicorn.protocols.http.flow_control import FlowControl  # noqa: PLC0415 - a name of its own

    assert [name for name in FLOW if not hasattr(FlowControl(asyncio.Transport()), name)] == []


def test_a_turn_says_how_far_its_answer_is() -> None:
    source = inspect.getsource(RequestResponseCycle.__init__)
    for name in (
        "response_started", "response_complete", "keep_alive", "disconnected", "scope", "transport",
        "message_event", "on_response", "waiting_for_100_continue",
    ):  # fmt: skip
        assert f"self.{name}" in source, name


def test_a_status_line_is_rendered_for_every_code() -> None:
    assert STATUS_LINE[201] == b"HTTP/1.1 201 Created\r\n"
    assert STATUS_LINE[503].endswith(b"\r\n")
