"""The OpenAPI document: schemas from the wire structs, operations from one table.

`tests` hold it against the routes that exist and let schemathesis try what it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from penstock.api.http.batch import NDJSON
from penstock.api.http.context import VERSION
from penstock.api.http.dead import ForgetIn
from penstock.api.http.errors import ErrorBody
from penstock.api.http.health import HealthOut
from penstock.api.http.operations import OPERATIONS, Operation
from penstock.api.http.room_shapes import EnterIn, HeartbeatIn, JoinIn
from penstock.api.http.routes import PausedOut, RoutesOut
from penstock.api.http.shapes import BulkIn, FilterIn, MoveIn, Refused
from penstock.api.http.ticks import Healthy, TickIn, TickOut
from penstock.model.draft import Draft
from penstock.model.patch import Patch
from penstock.model.policy import Cap, Pace, Quiet, Suppression
from penstock.model.policy_view import (
    CountersOut,
    DecisionIn,
    DecisionOut,
    Dropped,
    Listed,
)
from penstock.model.room import RoomDraft
from penstock.model.room_view import EnteredOut, RoomOut, RoomPage, TicketOut
from penstock.model.status_view import DeadGroups, ForecastView, HistoryView, Readiness, Stats
from penstock.model.view import Accepted, BulkResult, Erased, EventOut, MessageOut, PageOut
from penstock.rooms.history import RoomHistoryView

Json: TypeAlias = dict[str, Any]  # a JSON document: its shape is OpenAPI's

NAMES = {
    "Accepted": Accepted,
    "Bulk": BulkIn,
    "BulkResult": BulkResult,
    "Forget": ForgetIn,
    "Erased": Erased,
    "Cap": Cap,
    "Counters": CountersOut,
    "DeadGroups": DeadGroups,
    "Decision": DecisionOut,
    "Error": ErrorBody,
    "Event": EventOut,
    "Filter": FilterIn,
    "Forecast": ForecastView,
    "Health": HealthOut,
    "Healthy": Healthy,
    "History": HistoryView,
    "Message": MessageOut,
    "MessagePage": PageOut,
    "Move": MoveIn,
    "Named": Dropped,
    "NewMessage": Draft,
    "Pace": Pace,
    "Patch": Patch,
    "Paused": PausedOut,
    "PolicyList": Listed,
    "Question": DecisionIn,
    "Quiet": Quiet,
    "Ready": Readiness,
    "Enter": EnterIn,
    "Entered": EnteredOut,
    "Heartbeat": HeartbeatIn,
    "Join": JoinIn,
    "Room": RoomOut,
    "RoomHistory": RoomHistoryView,
    "RoomPage": RoomPage,
    "RoomSettings": RoomDraft,
    "Ticket": TicketOut,
    "Refused": Refused,
    "Routes": RoutesOut,
    "Stats": Stats,
    "Suppression": Suppression,
    "Tick": TickIn,
    "TickId": TickOut,
}
_ID = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[ -~]+$"}
_NAME = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"}
_KEY = {"type": "string", "minLength": 1, "maxLength": 512}
_MOMENT = {
    "type": "string",
    "format": "date-time",
    "description": "RFC 3339 with an offset, 1970 to 9999.",
    "examples": ["2030-01-31T09:00:00+02:00"],
}
_DELAY = {
    "anyOf": [
        {"type": "number", "minimum": 0, "maximum": 1e10},
        {"type": "string", "pattern": "^[0-9]{1,9}(\\.[0-9]{1,3})?(ms|s|m|h|d)?$"},
        {"type": "null"},
    ],
    "description": 'Seconds, or "1500ms" "90s" "15m" "2h" "3d". Not together with `at`.',
    "examples": ["15m"],
}
_PRIORITY = {"type": "integer", "minimum": 0, "maximum": 9, "description": "9 leaves first."}
_PAYLOAD = {"description": "Any JSON value; the sink gets its exact text."}
_BASE64 = {
    "anyOf": [{"type": "string", "contentEncoding": "base64"}, {"type": "null"}],
    "description": "Raw bytes, with `content_type`; in place of `payload`.",
}
FIELDS: dict[str, dict[str, Json]] = {
    "NewMessage": {
        "id": {
            "anyOf": [_ID, {"type": "null"}],
            "description": "Identity and idempotency key: the same id twice is one message.",
        },
        "key": {
            "anyOf": [_KEY, {"type": "null"}],
            "description": "Whom or what it is about. Default: the id.",
        },
        "payload": _PAYLOAD,
        "payload_base64": _BASE64,
        "at": {
            "anyOf": [_MOMENT, {"type": "null"}],
            "description": "When it is due, with an offset; past means now. Without `at` and"
            " `delay`: now.",
        },
        "delay": _DELAY,
        "expires": {
            "anyOf": [_MOMENT, {"type": "null"}],
            "description": "Not sent after this: it is settled `expired`.",
        },
        "priority": {**_PRIORITY, "default": 5},
    },
    "Patch": {
        "payload": _PAYLOAD,
        "payload_base64": _BASE64,
        "at": {"anyOf": [_MOMENT, {"type": "null"}]},
        "delay": _DELAY,
        "expires": {"anyOf": [_MOMENT, {"type": "null"}]},
        "priority": {"anyOf": [_PRIORITY, {"type": "null"}]},
    },
    "Tick": {"item": _KEY, "at": _MOMENT},
    "Move": {"at": {"anyOf": [_MOMENT, {"type": "null"}]}, "delay": _DELAY},
    "Bulk": {
        "rate": {
            "anyOf": [
                {"type": "string", "pattern": "^[1-9][0-9]{0,6}/(s|m|h)$"},
                {"type": "null"},
            ],
            "description": 'Redrive only: how fast they become due again, such as "100/s".',
        }
    },
    "Filter": {
        "due_from": {"anyOf": [_MOMENT, {"type": "null"}]},
        "due_to": {"anyOf": [_MOMENT, {"type": "null"}]},
    },
}
EXAMPLES: dict[str, Json] = {
    "NewMessage": {
        "id": "order-17-reminder",
        "key": "user1234",
        "payload": {"text": "Your basket is waiting"},
        "delay": "15m",
    },
    "Patch": {"delay": "2h"},
    "Tick": {"item": "user1234", "at": "2030-01-31T09:00:00Z"},
    "Bulk": {"filter": {"route": "default"}, "dry_run": True},
    "Forget": {"key": "user1"},
    "Move": {"filter": {"route": "default"}, "delay": "2h", "dry_run": True},
    "RoomSettings": {"capacity": 1000, "admit_rate": "200/s", "claim_ttl": "2m"},
    "Join": {"user": "u1"},
    "Heartbeat": {"user": "u1"},
    "Enter": {"token": "eyJ…"},
    "Policy": {"kind": "cap", "scope": ["key"], "limit": 3, "window": "24h"},
    "Suppression": {"keys": ["user1"], "legal": True},
    "Question": {"key": "user1", "labels": {"class": "promotional", "tz": "Asia/Seoul"}},
}
DESCRIPTION = (
    "Schedule a message for any moment; it is held durably and released at its moment. Errors are"
    ' always `{"error":{"code","message","field"}}`. Times are RFC 3339.'
)


def build_document(routes: Iterable[str], *, tokens: bool) -> bytes:
    """The document of a server that knows these routes."""
    document: Json = {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": VERSION, "description": DESCRIPTION},
        "paths": _paths(tokens=tokens),
        "components": {
            "schemas": _schemas(sorted(routes)),
            "responses": {
                "Failed": {
                    "description": "Refused; the code says why.",
                    "content": {"application/json": {"schema": _ref("Error")}},
                }
            },
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }
    return msgspec.json.encode(document)


def _paths(*, tokens: bool) -> Json:
    paths: Json = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation, tokens)
    return paths


def _operation(operation: Operation, tokens: bool) -> Json:
    described: Json = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [_parameter(operation, name) for name in operation.parameters],
        "responses": {
            str(status): _response(description, schema, operation.media)
            for status, (description, schema) in operation.answers.items()
        },
    }
    for status in operation.failures:
        described["responses"][str(status)] = {"$ref": "#/components/responses/Failed"}
    described["responses"]["default"] = {"$ref": "#/components/responses/Failed"}
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _body(operation)}
    if tokens and operation.scope != "open":
        described["security"] = [{"bearer": []}]
        described["description"] = f"Needs a token with the scope `{operation.scope}`."
    return described


def _body(operation: Operation) -> Json:
    if operation.body == "batch":
        schema = {"type": "array", "items": _ref("NewMessage")}
        lines = {"type": "string", "description": "One message a line."}
        return {
            "application/json": {"schema": schema, "example": [EXAMPLES["NewMessage"]]},
            NDJSON: {"schema": lines, "example": '{"id":"a"}\n{"id":"b","delay":"1h"}\n'},
        }
    name = str(operation.body)
    return {"application/json": {"schema": _ref(name), "example": EXAMPLES[name]}}


def _response(description: str, schema: str | None, media: tuple[str, ...]) -> Json:
    if schema is None:
        return {"description": description, "content": {kind: {} for kind in media}}
    content: Json = {"application/json": {"schema": _ref(schema)}}
    if schema == "Outcomes":
        content[NDJSON] = {"schema": {"type": "string"}}
    return {"description": description, "content": content}


def _parameter(operation: Operation, name: str) -> Json:
    if f"{{{name}}}" in operation.path:
        schema = PATH.get(name, {"$ref": "#/components/schemas/RouteName"})
        if operation.path.startswith("/actuator"):
            schema = {"type": "string", "examples": ["executor.active"]}
        return {"name": name, "in": "path", "required": True, "schema": schema}
    if name == "If-Match":
        schema = {"type": "string", "pattern": '^("[0-9]{1,9}"|[0-9]{1,9}|\\*)$'}
        told = "Only if the message still has this version."
        return {"name": name, "in": "header", "schema": schema, "description": told}
    return {"name": name, "in": "query", "schema": QUERY[name]}


_LEFT_OUT = {"const": ""}
PATH: dict[str, Json] = {
    "id": _ID,
    "room": {"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,200}$"},
    "user": {"type": "string", "pattern": "^[A-Za-z0-9_.@:-]{1,200}$"},
    "key": {**_KEY, "pattern": "^[!-.0-~]+$"},
    "policy": _NAME,
    "suppression": _NAME,
}
QUERY: dict[str, Json] = {
    "state": {"anyOf": [{"$ref": "#/components/schemas/State"}, _LEFT_OUT]},
    "route": {"type": "string"},
    "key": {"type": "string"},
    "due_from": {"anyOf": [_MOMENT, _LEFT_OUT]},
    "due_to": {"anyOf": [_MOMENT, _LEFT_OUT]},
    "error": {"type": "string", "description": "A piece of last_error."},
    "cursor": {"type": "string", "description": "`next` of the page before."},
    "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
}


def _schemas(routes: list[str]) -> Json:
    _, found = msgspec.json.schema_components(
        NAMES.values(), ref_template="#/components/schemas/{name}"
    )
    ours = {struct.__name__: name for name, struct in NAMES.items()}
    schemas = {ours.get(name, name): schema for name, schema in found.items()}
    schemas = {name: _renamed(schema, ours) for name, schema in schemas.items()}
    for name, schema in schemas.items():
        schema.pop("title", None)
        schema.get("properties", {}).update(FIELDS.get(name, {}))
    schemas["RouteName"] = {"type": "string", "enum": routes}
    schemas["NewMessage"]["properties"]["route"] = {
        "anyOf": [_ref("RouteName")],
        "default": "default",
        "description": "Where it goes.",
    }
    schemas["Policy"] = {"anyOf": [_ref("Cap"), _ref("Quiet"), _ref("Pace")]}
    schemas["HeldPolicy"] = _held("kind", "A policy in the words it was written in, and its id.")
    schemas["HeldSuppression"] = _held("legal", "A suppression list with its id.")
    schemas["Outcomes"] = {
        "type": "array",
        "items": {"anyOf": [_ref("Accepted"), _ref("Refused")]},
    }
    return schemas


def _held(field: str, told: str) -> Json:
    """What was put, with its id."""
    name = {"type": "string"}
    return {
        "type": "object",
        "description": told,
        "required": ["id", field],
        "properties": {"id": name},
    }


def _renamed(value: Any, ours: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            key: _ref(ours.get(inner.rpartition("/")[2], inner.rpartition("/")[2]))["$ref"]
            if key == "$ref"
            else _renamed(inner, ours)
            for key, inner in value.items()
        }
    return [_renamed(item, ours) for item in value] if isinstance(value, list) else value


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}
