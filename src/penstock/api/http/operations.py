"""Every operation of the HTTP API, as the docs tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

Answers: TypeAlias = Mapping[int, tuple[str, str | None]]
"""Status → what it means, and the schema of its body."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one path."""

    method: Literal["get", "post", "patch", "delete"]
    path: str
    name: str
    tag: str
    summary: str
    answers: Answers
    failures: tuple[int, ...] = ()
    body: str | None = None
    parameters: tuple[str, ...] = ()
    scope: Literal["open", "read", "write", "admin"] = "read"
    media: tuple[str, ...] = ("application/json",)
    """Of answers without a schema."""


_WRITE = (400, 413, 415, 422, 503)
_LIST = ("state", "route", "key", "due_from", "due_to", "error", "cursor", "limit")

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="post",
        path="/v1/messages",
        name="schedule",
        tag="Messages",
        summary="Schedule one message; durable once it is answered",
        body="NewMessage",
        scope="write",
        answers={
            201: ("Accepted", "Accepted"),
            200: ("The id was known before; this is what is held", "Accepted"),
        },
        failures=(*_WRITE, 429),
    ),
    Operation(
        method="post",
        path="/v1/messages/batch",
        name="scheduleBatch",
        tag="Messages",
        summary="Schedule any number: a JSON array, or NDJSON read as a stream",
        body="batch",
        scope="write",
        answers={
            200: ("All accepted; outcomes in order", "Outcomes"),
            207: ("Some were not; outcomes in order", "Outcomes"),
            503: ("None could be stored", "Outcomes"),
        },
        failures=(400, 415),
    ),
    Operation(
        method="get",
        path="/v1/messages",
        name="list",
        tag="Messages",
        summary="A page of messages, in order of due",
        parameters=_LIST,
        answers={200: ("A page", "MessagePage")},
        failures=(400, 422),
    ),
    Operation(
        method="get",
        path="/v1/messages/{id}",
        name="get",
        tag="Messages",
        summary="One message with its timeline",
        parameters=("id",),
        answers={200: ("The message", "Message")},
        failures=(404,),
    ),
    Operation(
        method="patch",
        path="/v1/messages/{id}",
        name="change",
        tag="Messages",
        summary="Reschedule a waiting message, or change what it carries",
        parameters=("id", "If-Match"),
        body="Patch",
        scope="write",
        answers={200: ("Changed", "Message")},
        failures=(*_WRITE, 404, 409, 412),
    ),
    Operation(
        method="delete",
        path="/v1/messages/{id}",
        name="cancel",
        tag="Messages",
        summary="Cancel; twice is the same answer twice",
        parameters=("id", "If-Match"),
        scope="write",
        answers={200: ("Cancelled, now or before", "Message")},
        failures=(404, 409, 412, 422),
    ),
    Operation(
        method="post",
        path="/v1/messages/{id}/release",
        name="release",
        tag="Messages",
        summary="Make a waiting message due now",
        parameters=("id", "If-Match"),
        scope="write",
        answers={200: ("Due now", "Message")},
        failures=(404, 409, 412, 422),
    ),
    Operation(
        method="post",
        path="/v1/messages/cancel",
        name="cancelMany",
        tag="Messages",
        summary="Cancel everything scheduled that matches a filter",
        body="Bulk",
        scope="write",
        answers={200: ("How many matched, and of how many it was done", "BulkResult")},
        failures=_WRITE,
    ),
    Operation(
        method="post",
        path="/v1/dead/redrive",
        name="redrive",
        tag="Dead letters",
        summary="Send the dead that match once more, paced",
        body="Bulk",
        scope="write",
        answers={200: ("How many matched, and of how many it was done", "BulkResult")},
        failures=_WRITE,
    ),
    Operation(
        method="get",
        path="/v1/routes",
        name="routes",
        tag="Routes",
        summary="Every route and what is held for it",
        answers={200: ("The routes", "Routes")},
    ),
    Operation(
        method="post",
        path="/v1/routes/{name}/pause",
        name="pause",
        tag="Routes",
        summary="Release nothing of this route until it is resumed",
        parameters=("name",),
        scope="admin",
        answers={200: ("Paused", "Paused")},
        failures=(404,),
    ),
    Operation(
        method="post",
        path="/v1/routes/{name}/resume",
        name="resume",
        tag="Routes",
        summary="Release again",
        parameters=("name",),
        scope="admin",
        answers={200: ("Resumed", "Paused")},
        failures=(404,),
    ),
    Operation(
        method="get",
        path="/v1/stats",
        name="stats",
        tag="Figures",
        summary="What is held, and what this process did",
        answers={200: ("The figures", "Stats")},
    ),
    Operation(
        method="get",
        path="/v1/events",
        name="events",
        tag="Figures",
        summary="The same figures once a second, as server-sent events",
        answers={200: ("`event: stats` with the figures as data", None)},
        failures=(429,),
        media=("text/event-stream",),
    ),
    Operation(
        method="get",
        path="/metrics",
        name="metrics",
        tag="Figures",
        summary="For Prometheus",
        answers={200: ("Prometheus text format", None)},
        media=("text/plain",),
    ),
    Operation(
        method="get",
        path="/healthz",
        name="healthz",
        tag="Health",
        summary="The process is up",
        scope="open",
        answers={200: ("Up", "Health")},
    ),
    Operation(
        method="get",
        path="/readyz",
        name="readyz",
        tag="Health",
        summary="Messages can be taken now",
        scope="open",
        answers={200: ("Ready", "Ready"), 503: ("Not now", "Ready")},
    ),
    Operation(
        method="get",
        path="/healthy",
        name="healthy",
        tag="Ticks",
        summary="The process is up, as the tick service says it",
        scope="open",
        answers={200: ("Up", "Healthy")},
    ),
    Operation(
        method="post",
        path="/ticks",
        name="tick",
        tag="Ticks",
        summary="Tell about an item at a moment",
        body="Tick",
        scope="write",
        answers={202: ("Accepted", "TickId")},
        failures=(*_WRITE, 429),
    ),
)
