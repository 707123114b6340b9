"""Every verb of the HTTP API, written once: its path, parameters, answers and scope.

From this table come the router and its guard (`api/http/router.py`), the OpenAPI document
(`api/http/openapi.py`), the calls of the clients (`sdk/calls.py`), the commands that are one call
and nothing more (`cli/plain.py`) and the reference pages. It has names only, so that a client can
read it without loading a server: handlers and structs are imported on first use (`load`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, Literal, TypeAlias

import msgspec

Answers: TypeAlias = Mapping[int, tuple[str, str | None]]
"""Status → its description, and the schema of its body (None: the body is no JSON)."""


class Verb(msgspec.Struct, frozen=True, dict=True):
    """One method on one path."""

    name: str
    """The operation's id in OpenAPI, and the name that `sdk.calls.call` takes."""
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    scope: Literal["open", "visitor", "metrics", "read", "write", "admin"]
    """visitor: the ticket a join returned (x-ticket) will do in place of a token."""
    handler: str
    """`module:function` in penstock.api.http, or with the whole name of the module."""
    tag: str = ""
    """Its chapter in the documentation; empty: a page, which is not documented there."""
    words: str = ""
    flow: str = ""
    """The method of the flow that a handler of several verbs calls."""
    body: str | None = None
    """The schema of the request's body."""
    parameters: tuple[str, ...] = ()
    """Names in the query, and If-Match."""
    answers: Answers = {}
    failures: tuple[int, ...] = ()
    command: str = ""
    """Noun and word of the command that is this call and nothing more: `room close`. Its word is a
    method of the clients and the engine; other commands have options and answers of their own.
    """
    media: str = "application/json"
    """The content type of answers without a schema."""
    limited: bool = False
    """Whether a token limited to routes or classes may call it: the handler checks both."""
    bulk: bool = False
    """Its duration grows with the number of messages: a client waits for its answer without end."""
    counts: bool = False
    """A repeated call would answer other counts than the first: clients do not repeat it."""

    @cached_property
    def query(self) -> frozenset[str]:
        """The parameters it knows in the query."""
        return frozenset(self.parameters) - {"If-Match"}

    @cached_property
    def in_path(self) -> tuple[str, ...]:
        """The names of the named segments."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))

    @property
    def word(self) -> str:
        """The last segment of its path: `pause` of `/v1/routes/{name}/pause`."""
        return self.path.rpartition("/")[2]

    @property
    def streams(self) -> bool:
        """True if its answer does not end by itself; such a path has no HEAD."""
        return self.media == "text/event-stream"


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """The verbs, their schemas and hot routes that a part beside the core adds to a server.

    A server takes them by `HttpServer(…, mounts=…)` and `ScrapeServer(…, mounts=…)`.
    """

    name: str
    verbs: tuple[Verb, ...]
    """The verbs, with handlers by the full name of their module:
    `penstock.contrib.ticks.http:create`.
    """
    schemas: Mapping[str, str] = {}
    """Schema → `module:Struct`, as SCHEMAS."""
    fields: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}
    """Schema → property → additional JSON Schema that the struct's types do not express."""
    examples: Mapping[str, Mapping[str, Any]] = {}
    """Schema → an example of a body."""
    in_path: Mapping[str, Mapping[str, Any]] = {}
    """A name in a path of its own verbs → its JSON Schema."""
    figures: str = ""
    """`module:function` that is given the waiting rooms and returns collectors for /metrics."""
    everywhere: bool = False
    """Its verbs are answered on the port for Prometheus of a process without an API, too."""
    hot: str = ""
    """`module:function` that is given the Api and returns {path: HotRoute}: POSTs that are answered
    without ASGI."""


def load(name: str, package: str = "") -> Any:
    """The object called `module:name`; a module without dots is one of `package`."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module if "." in module else f"{package}.{module}"), attribute)


WRITE = (400, 413, 415, 422, 429, 503)
"""Statuses with which a body can be refused."""
_LIST = ("state", "route", "key", "due_from", "due_to", "error", "cursor", "limit")
_COUNTED: Answers = {200: ("How many matched, and of how many it was done", "BulkResult")}
_ROOM: Answers = {200: ("The room and its figures", "Room")}
_RULE: Answers = {200: ("The rule", "Recurring")}
_TICKET: Answers = {200: ("The visitor's place", "Ticket")}

# fmt: off
# A row reads as a row: name, method, path, scope, handler; chapter and words; in and out.
VERBS: tuple[Verb, ...] = (
    Verb("schedule", "POST", "/v1/messages", "write", "messages:create_message",
         "Messages", "Schedule one message; durable once it is answered",
         body="NewMessage",
         answers={201: ("Accepted", "Accepted"),
                  200: ("The id was known before; the stored message", "Accepted")},
         failures=WRITE, limited=True),
    Verb("scheduleBatch", "POST", "/v1/messages/batch", "write", "batch:create_messages",
         "Messages", "Schedule any number: a JSON array, or NDJSON read as a stream",
         body="batch",
         answers={200: ("All accepted; outcomes in order", "Outcomes"),
                  207: ("Some were not; outcomes in order", "Outcomes"),
                  503: ("None could be stored", "Outcomes")},
         failures=(400, 415, 507), limited=True),
    Verb("list", "GET", "/v1/messages", "read", "messages:list_messages",
         "Messages", "A page of messages, in order of due",
         parameters=_LIST, answers={200: ("A page", "MessagePage")}, failures=(400, 422),
         limited=True),
    Verb("get", "GET", "/v1/messages/{id}", "read", "messages:get_message",
         "Messages", "One message with its timeline",
         answers={200: ("The message", "Message")}, failures=(404,), limited=True),
    Verb("change", "PATCH", "/v1/messages/{id}", "write", "messages:change_message",
         "Messages", "Reschedule a waiting message, or change its content",
         body="Patch", parameters=("If-Match",), answers={200: ("Changed", "Message")},
         failures=(*WRITE, 404, 409, 412), limited=True),
    Verb("cancel", "DELETE", "/v1/messages/{id}", "write", "messages:cancel_message",
         "Messages", "Cancel, or delete if it is dead; cancelling twice is the same answer twice",
         parameters=("If-Match", "state"),
         answers={200: ("Cancelled, now or before; or, with `deleted`, what it was", "Message")},
         failures=(404, 409, 412, 422), limited=True),
    Verb("release", "POST", "/v1/messages/{id}/release", "write", "messages:change_stored",
         "Messages", "Make a waiting message due now",
         flow="release", parameters=("If-Match",), answers={200: ("Due now", "Message")},
         failures=(404, 409, 412, 422), limited=True),
    Verb("redriveOne", "POST", "/v1/messages/{id}/redrive", "write", "messages:change_stored",
         "Messages", "Send a dead message again",
         flow="redrive", parameters=("If-Match",),
         answers={200: ("Scheduled again, due now", "Message")}, failures=(404, 409, 412, 422),
         limited=True),
    Verb("cancelMany", "POST", "/v1/messages/cancel", "write", "bulk:change_matching",
         "Messages", "Cancel everything scheduled that matches a filter",
         flow="cancel_where", body="Bulk", answers=_COUNTED, failures=WRITE, limited=True,
         bulk=True, counts=True),
    Verb("releaseMany", "POST", "/v1/messages/release", "write", "bulk:change_matching",
         "Messages", "Make everything that matches a filter and is not due yet due now",
         flow="release_where", body="Bulk", answers=_COUNTED, failures=WRITE, limited=True,
         bulk=True, counts=True),
    Verb("rescheduleMany", "POST", "/v1/messages/reschedule", "write", "bulk:change_matching",
         "Messages", "Make everything scheduled that matches a filter due at one moment",
         flow="reschedule_where", body="Move", answers=_COUNTED, failures=WRITE, limited=True,
         bulk=True, counts=True),
    Verb("forget", "POST", "/v1/forget", "admin", "dead:forget_key",
         "Messages", "Erase every message and counter of a key",
         body="Forget",
         answers={200: ("How much; `pending` go when they were sent; `next`: the `cursor` to go on",
                        "Erased")},
         failures=WRITE, bulk=True, counts=True),
    Verb("redrive", "POST", "/v1/dead/redrive", "write", "bulk:change_matching",
         "Dead letters", "Send the dead messages that match again, paced",
         flow="redrive_where", body="Bulk", answers=_COUNTED, failures=WRITE, limited=True,
         bulk=True, counts=True),
    Verb("deleteDead", "POST", "/v1/dead/delete", "write", "bulk:change_matching",
         "Dead letters", "Delete the dead messages that match, with all their data",
         flow="delete_where", body="Bulk", answers=_COUNTED, failures=WRITE, limited=True,
         bulk=True, counts=True),
    Verb("deadGroups", "GET", "/v1/dead/groups", "read", "dead:group_dead",
         "Dead letters", "Dead letters grouped by error, the largest group first",
         parameters=("route",), answers={200: ("The groups", "DeadGroups")}, failures=(400, 422),
         limited=True),
    Verb("routes", "GET", "/v1/routes", "read", "routes:list_routes",
         "Routes", "Every route with the store's figures for it",
         answers={200: ("The routes", "Routes")}, limited=True),
    Verb("pause", "POST", "/v1/routes/{name}/pause", "admin", "routes:set_paused",
         "Routes", "Pause a route: no process sends its messages until it is resumed",
         answers={200: ("Paused", "Paused")}, failures=(404,), limited=True,
         command="route pause"),
    Verb("resume", "POST", "/v1/routes/{name}/resume", "admin", "routes:set_paused",
         "Routes", "Resume a paused route",
         answers={200: ("Resumed", "Paused")}, failures=(404,), limited=True,
         command="route resume"),
    Verb("rules", "GET", "/v1/recurring", "read", "recurring:list_rules",
         "Recurring", "Rules in the order of their ids",
         parameters=("cursor", "limit"), answers={200: ("A page of rules", "RulePage")},
         failures=(404, 422)),
    Verb("rule", "GET", "/v1/recurring/{rule}", "read", "recurring:get_rule",
         "Recurring", "A rule, its next moments and the results of the latest",
         answers={200: ("The rule", "Recurring")}, failures=(404,)),
    Verb("putRule", "PUT", "/v1/recurring/{rule}", "write", "recurring:put_rule",
         "Recurring", "Make a rule or change it; no moment fires twice, none that stays is skipped",
         body="Rule", parameters=("If-Match",),
         answers={201: ("Made", "RulePut"), 200: ("Changed, or the same as before", "RulePut")},
         failures=(*WRITE, 404, 412)),
    Verb("dropRule", "DELETE", "/v1/recurring/{rule}", "write", "recurring:delete_rule",
         "Recurring", "Delete a rule; messages that it has planted stay",
         parameters=("If-Match",), answers={200: ("Deleted", "RuleDeleted")},
         failures=(404, 412, 422)),
    Verb("pauseRule", "POST", "/v1/recurring/{rule}/pause", "write", "recurring:set_paused",
         "Recurring", "Plant nothing of a rule until it is resumed",
         parameters=("If-Match",), answers=_RULE, failures=(400, 404, 412, 413, 415, 422),
         command="recurring pause"),
    Verb("resumeRule", "POST", "/v1/recurring/{rule}/resume", "write", "recurring:set_paused",
         "Recurring", "Plant again; moments that passed during the pause are not made up for",
         parameters=("If-Match",), answers=_RULE, failures=(400, 404, 412, 413, 415, 422),
         command="recurring resume"),
    Verb("triggerRule", "POST", "/v1/recurring/{rule}/trigger", "write", "recurring:trigger_rule",
         "Recurring", "Put one more message of a rule, due now",
         answers={200: ("The message", "Triggered")}, failures=(400, 404, 413, 415, 422, 503),
         command="recurring trigger", counts=True),
    Verb("backfillRule", "POST", "/v1/recurring/{rule}/backfill", "write",
         "recurring:backfill_rule",
         "Recurring", "Put past moments that are not known, due now",
         body="Backfill", answers={200: ("How many", "Backfilled")}, failures=(404, *WRITE),
         bulk=True, counts=True),
    Verb("previewRule", "POST", "/v1/recurring/preview", "read", "recurring:preview_rule",
         "Recurring", "The moments of a rule and its description in words; nothing is stored",
         body="Rule", answers={200: ("The next moments", "Preview")},
         failures=(400, 404, 413, 415, 422)),
    Verb("policies", "GET", "/v1/policies", "read", "policies:list_policies",
         "Policies", "Every policy",
         answers={200: ("The rules", "PolicyList")}),
    Verb("policy", "GET", "/v1/policies/{policy}", "read", "policies:get_policy",
         "Policies", "One policy, without fields that have their default",
         answers={200: ("The rule", "HeldPolicy")}, failures=(404,)),
    Verb("putPolicy", "PUT", "/v1/policies/{policy}", "admin", "policies:put_policy",
         "Policies", "Store a policy; it binds every later decision in every process",
         body="Policy", answers={200: ("Kept", "HeldPolicy")}, failures=WRITE),
    Verb("dropPolicy", "DELETE", "/v1/policies/{policy}", "admin", "policies:drop_policy",
         "Policies", "Delete a policy and its counters",
         answers={200: ("Deleted", "Named")}, failures=(404,)),
    Verb("suppressions", "GET", "/v1/suppressions", "read", "policies:list_suppressions",
         "Policies", "Every suppression list, without its keys",
         answers={200: ("The lists", "PolicyList")}),
    Verb("suppression", "GET", "/v1/suppressions/{suppression}", "read",
         "policies:get_suppression",
         "Policies", "One suppression list with its keys",
         answers={200: ("The list", "HeldSuppression")}, failures=(404,)),
    Verb("putSuppression", "PUT", "/v1/suppressions/{suppression}", "admin",
         "policies:put_suppression",
         "Policies", "Create or replace a list: exactly these keys get nothing",
         body="Suppression", answers={200: ("Kept", "HeldSuppression")}, failures=WRITE),
    Verb("dropSuppression", "DELETE", "/v1/suppressions/{suppression}", "admin",
         "policies:drop_suppression",
         "Policies", "Delete a suppression list: its keys get messages again",
         answers={200: ("Deleted", "Named")}, failures=(404,)),
    Verb("suppress", "PUT", "/v1/suppressions/{suppression}/keys/{key}", "admin",
         "policies:change_key",
         "Policies", "Add one key to a list",
         answers={200: ("On the list", "Named")}, failures=(404,)),
    Verb("unsuppress", "DELETE", "/v1/suppressions/{suppression}/keys/{key}", "admin",
         "policies:change_key",
         "Policies", "Take one key off a list",
         answers={200: ("Not on the list", "Named")}, failures=(404,)),
    Verb("explain", "POST", "/v1/decisions", "read", "policies:explain",
         "Policies",
         "The decision about a message, or an array of them, now; writes nothing",
         body="Question", answers={200: ("The decision, or an array of them", "Decision")},
         failures=(400, 413, 415, 422)),
    Verb("counters", "GET", "/v1/counters/{key}", "read", "policies:counters",
         "Policies", "The counters of the caps for a key",
         answers={200: ("The counters", "Counters")}, failures=(404,)),
    Verb("stats", "GET", "/v1/stats", "read", "figures:read",
         "Figures", "The figures of the store and of the processes on it",
         flow="status.stats", answers={200: ("The figures", "Stats")}),
    Verb("events", "GET", "/v1/events", "read", "figures:events",
         "Figures", "The same figures once a second, as server-sent events",
         answers={200: ("`event: stats` with the figures, `event: point` with each curve's newest",
                        None)},
         failures=(429,), media="text/event-stream"),
    Verb("history", "GET", "/v1/history", "read", "figures:history",
         "Figures", "The last twenty minutes, a point a second",
         answers={200: ("The curves", "History")}),
    Verb("forecast", "GET", "/v1/forecast", "read", "figures:read",
         "Figures", "Messages coming due: by minute for an hour, by hour for a week",
         flow="status.forecast", answers={200: ("The forecast", "Forecast")}),
    Verb("metrics", "GET", "/metrics", "metrics", "figures:metrics",
         "Figures", "For Prometheus",
         answers={200: ("Prometheus text format", None)}, media="text/plain"),
    Verb("healthz", "GET", "/healthz", "open", "health:healthz",
         "Health", "The process is up",
         answers={200: ("Up", "Health")}),
    Verb("readyz", "GET", "/readyz", "open", "health:readyz",
         "Health", "Messages can be taken now",
         answers={200: ("Ready", "Ready"), 503: ("Not now", "Ready")}),
    Verb("rooms", "GET", "/v1/rooms", "read", "rooms:list_rooms",
         "Rooms", "Rooms and their figures, by name",
         parameters=("cursor", "limit"), answers={200: ("A page of rooms", "RoomPage")},
         failures=(422,)),
    Verb("roomHistory", "GET", "/v1/history/rooms", "read", "figures:room_history",
         "Rooms", "The last quarter of an hour of the first 50 rooms, a look every five seconds",
         answers={200: ("The curves", "RoomHistory")}),
    Verb("putRoom", "PUT", "/v1/rooms/{room}", "admin", "rooms:put_room",
         "Rooms", "Create a room or set all its settings: what is left out takes its default",
         body="RoomSettings", answers=_ROOM, failures=WRITE),
    Verb("room", "GET", "/v1/rooms/{room}", "read", "rooms:get_room",
         "Rooms", "A room and its figures",
         answers=_ROOM, failures=(404,)),
    Verb("joinRoom", "POST", "/v1/rooms/{room}/join", "visitor", "rooms:join_room",
         "Rooms", "Join the line; a repeated call keeps the place",
         body="Join", answers=_TICKET, failures=(404, 409, *WRITE)),
    Verb("ticket", "GET", "/v1/rooms/{room}/tickets/{user}", "visitor", "rooms:get_ticket",
         "Rooms", "Place, estimate and, when it is the visitor's turn, the entry token",
         answers=_TICKET, failures=(404, 429)),
    Verb("watchTicket", "GET", "/v1/rooms/{room}/tickets/{user}/events", "visitor",
         "rooms:watch_ticket",
         "Rooms", "The same as server-sent events, until the visitor is admitted",
         answers={200: ("Events named `ticket`", None)}, failures=(404, 429),
         media="text/event-stream"),
    Verb("leaveRoom", "DELETE", "/v1/rooms/{room}/tickets/{user}", "visitor", "rooms:leave_room",
         "Rooms", "Give up the place or the slot",
         answers={200: ("Left, now or before", "Entered")}, failures=(404, 429, 503)),
    Verb("revokeTicket", "POST", "/v1/rooms/{room}/tickets/{user}/revoke", "admin",
         "rooms:revoke_ticket",
         "Rooms", "Remove a visitor from the line or the room",
         answers={200: ("How the ticket ended", "Entered")}, failures=(404, 503),
         command="room revoke"),
    Verb("heartbeat", "POST", "/v1/rooms/{room}/heartbeat", "visitor", "rooms:heartbeat",
         "Rooms", "A sign of life: keeps the place or the session, and says if it has ended",
         body="Heartbeat", answers=_TICKET, failures=(404, *WRITE)),
    Verb("enterRoom", "POST", "/v1/rooms/{room}/enter", "write", "rooms:enter_room",
         "Rooms", "Redeem an entry token, once",
         body="Enter", answers={200: ("The visitor is inside", "Entered")},
         failures=(401, 404, 409, *WRITE), counts=True),
    Verb("pauseRoom", "POST", "/v1/rooms/{room}/pause", "admin", "rooms:set_state",
         "Rooms", "Stop admitting visitors; they may still join",
         answers=_ROOM, failures=(404, 503), command="room pause"),
    Verb("resumeRoom", "POST", "/v1/rooms/{room}/resume", "admin", "rooms:set_state",
         "Rooms", "Admit visitors: opens a paused, scheduled or closed room",
         answers=_ROOM, failures=(404, 503), command="room resume"),
    Verb("openRoom", "POST", "/v1/rooms/{room}/open", "admin", "rooms:set_state",
         "Rooms", "Open a scheduled, paused or closed room now",
         answers=_ROOM, failures=(404, 503)),
    Verb("closeRoom", "POST", "/v1/rooms/{room}/close", "admin", "rooms:set_state",
         "Rooms", "Close the line: no more visitors may join it",
         answers=_ROOM, failures=(404, 503), command="room close"),
    Verb("resetRoom", "POST", "/v1/rooms/{room}/reset", "admin", "rooms:reset_room",
         "Rooms", "Empty the room: a new epoch, every earlier token is void",
         answers=_ROOM, failures=(404, 503), counts=True),
)
PAGES: tuple[Verb, ...] = (
    Verb("dashboard", "GET", "/", "open", "dashboard:page"),
    Verb("dashboardFile", "GET", "/ui/{file}", "open", "dashboard:asset"),
    Verb("dashboardView", "GET", "/ui/views/{file}", "open", "dashboard:view"),
    Verb("docs", "GET", "/docs", "open", "docs:page"),
    Verb("docsFile", "GET", "/static/{file}", "open", "docs:asset"),
    Verb("document", "GET", "/openapi.json", "open", "docs:document"),
    Verb("roomPage", "GET", "/rooms/{room}", "open", "room_page:page"),
    Verb("roomPageFile", "GET", "/rooms-static/{file}", "open", "room_page:asset"),
)
# fmt: on
"""The pages for browsers."""
BY_NAME: Mapping[str, Verb] = {verb.name: verb for verb in VERBS}

SCHEMAS: Mapping[str, str] = {
    "Accepted": "penstock.model.view:Accepted",
    "Backfill": "penstock.model.recurrence_view:BackfillIn",
    "Backfilled": "penstock.model.recurrence_view:Backfilled",
    "Bulk": "penstock.api.http.shapes:BulkIn",
    "BulkResult": "penstock.model.view:BulkResult",
    "Cap": "penstock.model.policy:Cap",
    "Counters": "penstock.model.policy_view:CountersOut",
    "DeadGroups": "penstock.model.status_view:DeadGroups",
    "Decision": "penstock.model.policy_view:DecisionOut",
    "Enter": "penstock.api.http.room_shapes:EnterIn",
    "Entered": "penstock.model.room_view:EnteredOut",
    "Erased": "penstock.model.view:Erased",
    "Error": "penstock.api.http.errors:ErrorBody",
    "Event": "penstock.model.view:EventOut",
    "Filter": "penstock.api.http.shapes:FilterIn",
    "Forecast": "penstock.model.status_view:ForecastView",
    "Forget": "penstock.api.http.shapes:ForgetIn",
    "Health": "penstock.model.status_view:HealthOut",
    "Heartbeat": "penstock.api.http.room_shapes:HeartbeatIn",
    "History": "penstock.model.status_view:HistoryView",
    "Join": "penstock.api.http.room_shapes:JoinIn",
    "Message": "penstock.model.view:MessageOut",
    "MessagePage": "penstock.model.view:PageOut",
    "Move": "penstock.api.http.shapes:MoveIn",
    "Named": "penstock.model.policy_view:Dropped",
    "NewMessage": "penstock.model.draft:Draft",
    "Pace": "penstock.model.policy:Pace",
    "Patch": "penstock.model.patch:Patch",
    "Paused": "penstock.model.status_view:PausedOut",
    "PolicyList": "penstock.model.policy_view:Listed",
    "Preview": "penstock.model.recurrence_view:Preview",
    "Question": "penstock.model.policy_view:DecisionIn",
    "Quiet": "penstock.model.policy:Quiet",
    "Ready": "penstock.model.status_view:Readiness",
    "Recurring": "penstock.model.recurrence_view:RecurringOut",
    "Refused": "penstock.api.http.shapes:Refused",
    "Room": "penstock.model.room_view:RoomOut",
    "RoomHistory": "penstock.model.room_view:RoomHistoryView",
    "RoomPage": "penstock.model.room_view:RoomPage",
    "RoomSettings": "penstock.model.room:RoomDraft",
    "Routes": "penstock.model.status_view:RoutesOut",
    "Rule": "penstock.model.recurrence:Rule",
    "RuleDeleted": "penstock.model.recurrence_view:RuleDeleted",
    "RulePage": "penstock.model.recurrence_view:RulePage",
    "RulePut": "penstock.model.recurrence_view:RulePut",
    "Stats": "penstock.model.status_view:Stats",
    "Suppression": "penstock.model.policy:Suppression",
    "Ticket": "penstock.model.room_view:TicketOut",
    "Triggered": "penstock.model.recurrence_view:Triggered",
}
"""The schemas' names in the document → the structs they are made of."""
