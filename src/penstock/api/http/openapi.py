"""The OpenAPI document: operations from the table of verbs, schemas from the wire structs.

A test runs schemathesis against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from penstock.api.http.batch import NDJSON
from penstock.api.http.context import VERSION
from penstock.api.verbs import SCHEMAS, VERBS, Mount, Verb, load

Json: TypeAlias = dict[str, Any]  # a JSON document: its shape is OpenAPI's

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
    "Rule": {
        "every": _DELAY | {"description": "At least 1s, counted from the anchor."},
        "anchor": {"anyOf": [_MOMENT, {"type": "null"}]},
        "start": {"anyOf": [_MOMENT, {"type": "null"}]},
        "end": {"anyOf": [_MOMENT, {"type": "null"}]},
        "expires_after": _DELAY | {"description": "Counted from the moment."},
        "jitter": _DELAY | {"description": "Each occurrence is due within this time."},
        "catch_up": {"anyOf": _DELAY["anyOf"][:2], "default": "1d"},
        "payload": _PAYLOAD,
        "payload_base64": _BASE64,
        "priority": {**_PRIORITY, "default": 5},
    },
    "Backfill": {"from": _MOMENT, "to": _MOMENT},
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
    "Bulk": {"filter": {"route": "default"}, "dry_run": True},
    "Forget": {"key": "user1"},
    "Move": {"filter": {"route": "default"}, "delay": "2h", "dry_run": True},
    "RoomSettings": {"capacity": 1000, "admit_rate": "200/s", "claim_ttl": "2m"},
    "Join": {"user": "u1"},
    "Heartbeat": {"user": "u1"},
    "Enter": {"token": "eyJ…"},
    "Policy": {"kind": "cap", "scope": ["key"], "limit": 3, "window": "24h"},
    "Rule": {"cron": "0 9 * * mon-fri", "zone": "Europe/Berlin", "payload": {"report": "daily"}},
    "Backfill": {"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z"},
    "Suppression": {"keys": ["user1"], "legal": True},
    "Question": {"key": "user1", "labels": {"class": "promotional", "tz": "Asia/Seoul"}},
}
DESCRIPTION = (
    "Schedule a message for any moment; it is held durably and released at its moment. Errors are"
    ' always `{"error":{"code","message","field"}}`. Times are RFC 3339.'
)


def build_document(routes: Iterable[str], *, tokens: bool, mounts: Iterable[Mount] = ()) -> bytes:
    """The document of a server that knows these routes and has these parts beside the core."""
    parts = [CORE, *mounts]
    paths: Json = {}
    for part in parts:
        for verb in part.verbs:
            described = _operation(verb, part, tokens=tokens)
            paths.setdefault(verb.path, {})[verb.method.lower()] = described
    document: Json = {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": VERSION, "description": DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": _schemas(sorted(routes), parts),
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


def _operation(verb: Verb, part: Mount, *, tokens: bool) -> Json:
    names = (*verb.in_path, *verb.parameters)
    described: Json = {
        "operationId": verb.name,
        "summary": verb.words,
        "tags": [verb.tag],
        "parameters": [_parameter(verb, name, part) for name in names],
        "responses": {
            str(status): _response(description, schema, verb.media)
            for status, (description, schema) in verb.answers.items()
        },
    }
    for failure in (*verb.failures, "default"):
        described["responses"][str(failure)] = {"$ref": "#/components/responses/Failed"}
    if verb.body is not None:
        described["requestBody"] = {"required": True, "content": _body(verb.body, part)}
    if tokens and verb.scope != "open":
        described["security"] = [{"bearer": []}]
        described["description"] = f"Needs a token with the scope `{verb.scope}`."
    return described


def _body(name: str, part: Mount) -> Json:
    if name == "batch":
        schema = {"type": "array", "items": _ref("NewMessage")}
        lines = {"type": "string", "description": "One message a line."}
        return {
            "application/json": {"schema": schema, "example": [EXAMPLES["NewMessage"]]},
            NDJSON: {"schema": lines, "example": '{"id":"a"}\n{"id":"b","delay":"1h"}\n'},
        }
    return {"application/json": {"schema": _ref(name), "example": part.examples[name]}}


def _response(description: str, schema: str | None, media: str) -> Json:
    if schema is None:
        return {"description": description, "content": {media: {}}}
    content: Json = {"application/json": {"schema": _ref(schema)}}
    if schema == "Outcomes":
        content[NDJSON] = {"schema": {"type": "string"}}
    return {"description": description, "content": content}


def _parameter(verb: Verb, name: str, part: Mount) -> Json:
    if name in verb.in_path:
        return {"name": name, "in": "path", "required": True, "schema": part.in_path[name]}
    if name == "If-Match":
        schema = {"type": "string", "pattern": '^("[0-9]{1,9}"|[0-9]{1,9}|\\*)$'}
        meaning = "Only if it still has this version."
        return {"name": name, "in": "header", "schema": schema, "description": meaning}
    return {"name": name, "in": "query", "schema": QUERY[name]}


_LEFT_OUT = {"const": ""}
PATH: dict[str, Json] = {
    "id": _ID,
    "name": {"$ref": "#/components/schemas/RouteName"},
    "room": {"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,200}$"},
    "user": {"type": "string", "pattern": "^[A-Za-z0-9_.@:-]{1,200}$"},
    "key": {**_KEY, "pattern": "^[!-.0-~]+$"},
    "policy": _NAME,
    "rule": _NAME,
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


CORE = Mount(name="", verbs=VERBS, schemas=SCHEMAS, fields=FIELDS, examples=EXAMPLES, in_path=PATH)


def _schemas(routes: list[str], parts: list[Mount]) -> Json:
    names = {name: load(struct) for part in parts for name, struct in part.schemas.items()}
    _, found = msgspec.json.schema_components(
        names.values(), ref_template="#/components/schemas/{name}"
    )
    ours = {struct.__name__: name for name, struct in names.items()}
    schemas = {ours.get(name, name): schema for name, schema in found.items()}
    schemas = {name: _renamed(schema, ours) for name, schema in schemas.items()}
    fields = {name: more for part in parts for name, more in part.fields.items()}
    for name, schema in schemas.items():
        schema.pop("title", None)
        schema.get("properties", {}).update(fields.get(name, {}))
    schemas["RouteName"] = {"type": "string", "enum": routes}
    schemas["NewMessage"]["properties"]["route"] = {
        "anyOf": [_ref("RouteName")],
        "default": "default",
        "description": "Where it goes.",
    }
    schemas["Policy"] = {"anyOf": [_ref("Cap"), _ref("Quiet"), _ref("Pace")]}
    schemas["HeldPolicy"] = _held(
        "kind", "A policy and its id, without fields that have their default."
    )
    schemas["HeldSuppression"] = _held("legal", "A suppression list with its id.")
    schemas["Outcomes"] = {
        "type": "array",
        "items": {"anyOf": [_ref("Accepted"), _ref("Refused")]},
    }
    return schemas


def _held(field: str, description: str) -> Json:
    """A stored object with its id."""
    name = {"type": "string"}
    return {
        "type": "object",
        "description": description,
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
