import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_UNSPECIFIED: _ClassVar[State]
    STATE_SCHEDULED: _ClassVar[State]
    STATE_LEASED: _ClassVar[State]
    STATE_DELIVERED: _ClassVar[State]
    STATE_DEAD: _ClassVar[State]
    STATE_BLOCKED: _ClassVar[State]
    STATE_EXPIRED: _ClassVar[State]
    STATE_CANCELLED: _ClassVar[State]

class OnConflict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_CONFLICT_UNSPECIFIED: _ClassVar[OnConflict]
    ON_CONFLICT_KEEP: _ClassVar[OnConflict]
    ON_CONFLICT_REPLACE: _ClassVar[OnConflict]
    ON_CONFLICT_EARLIEST: _ClassVar[OnConflict]

class Misfire(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MISFIRE_UNSPECIFIED: _ClassVar[Misfire]
    MISFIRE_LATEST: _ClassVar[Misfire]
    MISFIRE_SKIP: _ClassVar[Misfire]
    MISFIRE_ALL: _ClassVar[Misfire]

class Overlap(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OVERLAP_UNSPECIFIED: _ClassVar[Overlap]
    OVERLAP_ALLOW: _ClassVar[Overlap]
    OVERLAP_SKIP: _ClassVar[Overlap]
    OVERLAP_REPLACE: _ClassVar[Overlap]
STATE_UNSPECIFIED: State
STATE_SCHEDULED: State
STATE_LEASED: State
STATE_DELIVERED: State
STATE_DEAD: State
STATE_BLOCKED: State
STATE_EXPIRED: State
STATE_CANCELLED: State
ON_CONFLICT_UNSPECIFIED: OnConflict
ON_CONFLICT_KEEP: OnConflict
ON_CONFLICT_REPLACE: OnConflict
ON_CONFLICT_EARLIEST: OnConflict
MISFIRE_UNSPECIFIED: Misfire
MISFIRE_LATEST: Misfire
MISFIRE_SKIP: Misfire
MISFIRE_ALL: Misfire
OVERLAP_UNSPECIFIED: Overlap
OVERLAP_ALLOW: Overlap
OVERLAP_SKIP: Overlap
OVERLAP_REPLACE: Overlap

class Labels(_message.Message):
    __slots__ = ("channel", "campaign", "tags", "tz", "keys")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    CAMPAIGN_FIELD_NUMBER: _ClassVar[int]
    CLASS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    TZ_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    channel: str
    campaign: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    tz: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, channel: _Optional[str] = ..., campaign: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., tz: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., **kwargs) -> None: ...

class ScheduleRequest(_message.Message):
    __slots__ = ("id", "route", "key", "payload", "content_type", "headers", "at", "delay", "expires", "priority", "labels", "topic", "on_conflict")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ON_CONFLICT_FIELD_NUMBER: _ClassVar[int]
    id: str
    route: str
    key: str
    payload: bytes
    content_type: str
    headers: _containers.ScalarMap[str, str]
    at: _timestamp_pb2.Timestamp
    delay: _duration_pb2.Duration
    expires: _timestamp_pb2.Timestamp
    priority: int
    labels: Labels
    topic: str
    on_conflict: OnConflict
    def __init__(self, id: _Optional[str] = ..., route: _Optional[str] = ..., key: _Optional[str] = ..., payload: _Optional[bytes] = ..., content_type: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., priority: _Optional[int] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ..., topic: _Optional[str] = ..., on_conflict: _Optional[_Union[OnConflict, str]] = ...) -> None: ...

class ScheduleResponse(_message.Message):
    __slots__ = ("id", "state", "due", "duplicate")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DUE_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: State
    due: _timestamp_pb2.Timestamp
    duplicate: bool
    def __init__(self, id: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ..., due: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., duplicate: _Optional[bool] = ...) -> None: ...

class ScheduleBatchRequest(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ScheduleRequest]
    def __init__(self, messages: _Optional[_Iterable[_Union[ScheduleRequest, _Mapping]]] = ...) -> None: ...

class ScheduleBatchResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("accepted", "refused")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    accepted: ScheduleResponse
    refused: Refused
    def __init__(self, accepted: _Optional[_Union[ScheduleResponse, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("index", "id", "status", "code", "message", "field")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    index: int
    id: str
    status: int
    code: str
    message: str
    field: str
    def __init__(self, index: _Optional[int] = ..., id: _Optional[str] = ..., status: _Optional[int] = ..., code: _Optional[str] = ..., message: _Optional[str] = ..., field: _Optional[str] = ...) -> None: ...

class ScheduleStreamResponse(_message.Message):
    __slots__ = ("received", "accepted", "duplicates", "refused", "refusals")
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    received: int
    accepted: int
    duplicates: int
    refused: int
    refusals: _containers.RepeatedCompositeFieldContainer[Refused]
    def __init__(self, received: _Optional[int] = ..., accepted: _Optional[int] = ..., duplicates: _Optional[int] = ..., refused: _Optional[int] = ..., refusals: _Optional[_Iterable[_Union[Refused, _Mapping]]] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("id", "version")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: int
    def __init__(self, id: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("id", "version")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: int
    def __init__(self, id: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class DeleteDeadRequest(_message.Message):
    __slots__ = ("route", "key", "due_from", "due_to", "error", "dry_run")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    DUE_FROM_FIELD_NUMBER: _ClassVar[int]
    DUE_TO_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    route: str
    key: str
    due_from: _timestamp_pb2.Timestamp
    due_to: _timestamp_pb2.Timestamp
    error: str
    dry_run: bool
    def __init__(self, route: _Optional[str] = ..., key: _Optional[str] = ..., due_from: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., due_to: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., error: _Optional[str] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class BulkResponse(_message.Message):
    __slots__ = ("matched", "done")
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    matched: int
    done: int
    def __init__(self, matched: _Optional[int] = ..., done: _Optional[int] = ...) -> None: ...

class RescheduleRequest(_message.Message):
    __slots__ = ("id", "version", "at", "delay", "payload", "content_type", "headers", "clear_headers", "expires", "clear_expires", "priority", "labels")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    CLEAR_HEADERS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    CLEAR_EXPIRES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: int
    at: _timestamp_pb2.Timestamp
    delay: _duration_pb2.Duration
    payload: bytes
    content_type: str
    headers: _containers.ScalarMap[str, str]
    clear_headers: bool
    expires: _timestamp_pb2.Timestamp
    clear_expires: bool
    priority: int
    labels: Labels
    def __init__(self, id: _Optional[str] = ..., version: _Optional[int] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., payload: _Optional[bytes] = ..., content_type: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., clear_headers: _Optional[bool] = ..., expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., clear_expires: _Optional[bool] = ..., priority: _Optional[int] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("id", "route", "key", "payload", "content_type", "headers", "due", "expires", "priority", "labels", "topic", "state", "version", "attempt", "last_error", "created", "claimed", "settled", "cancel_pending", "timeline")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    DUE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    CANCEL_PENDING_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    id: str
    route: str
    key: str
    payload: bytes
    content_type: str
    headers: _containers.ScalarMap[str, str]
    due: _timestamp_pb2.Timestamp
    expires: _timestamp_pb2.Timestamp
    priority: int
    labels: Labels
    topic: str
    state: State
    version: int
    attempt: int
    last_error: str
    created: _timestamp_pb2.Timestamp
    claimed: _timestamp_pb2.Timestamp
    settled: _timestamp_pb2.Timestamp
    cancel_pending: bool
    timeline: _containers.RepeatedCompositeFieldContainer[Event]
    def __init__(self, id: _Optional[str] = ..., route: _Optional[str] = ..., key: _Optional[str] = ..., payload: _Optional[bytes] = ..., content_type: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., due: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expires: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., priority: _Optional[int] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ..., topic: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ..., version: _Optional[int] = ..., attempt: _Optional[int] = ..., last_error: _Optional[str] = ..., created: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., claimed: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., settled: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., cancel_pending: _Optional[bool] = ..., timeline: _Optional[_Iterable[_Union[Event, _Mapping]]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("at", "event", "detail", "attempt")
    AT_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    at: _timestamp_pb2.Timestamp
    event: str
    detail: str
    attempt: int
    def __init__(self, at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., event: _Optional[str] = ..., detail: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class RecurringRule(_message.Message):
    __slots__ = ("cron", "every", "anchor", "zone", "route", "key", "payload", "content_type", "headers", "labels", "priority", "expires_after", "start", "end", "limit", "jitter", "misfire", "catch_up", "overlap", "paused")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CRON_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AFTER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    MISFIRE_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    cron: str
    every: _duration_pb2.Duration
    anchor: _timestamp_pb2.Timestamp
    zone: str
    route: str
    key: str
    payload: bytes
    content_type: str
    headers: _containers.ScalarMap[str, str]
    labels: Labels
    priority: int
    expires_after: _duration_pb2.Duration
    start: _timestamp_pb2.Timestamp
    end: _timestamp_pb2.Timestamp
    limit: int
    jitter: _duration_pb2.Duration
    misfire: Misfire
    catch_up: _duration_pb2.Duration
    overlap: Overlap
    paused: bool
    def __init__(self, cron: _Optional[str] = ..., every: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., anchor: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., zone: _Optional[str] = ..., route: _Optional[str] = ..., key: _Optional[str] = ..., payload: _Optional[bytes] = ..., content_type: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ..., priority: _Optional[int] = ..., expires_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., start: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., limit: _Optional[int] = ..., jitter: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., misfire: _Optional[_Union[Misfire, str]] = ..., catch_up: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., overlap: _Optional[_Union[Overlap, str]] = ..., paused: _Optional[bool] = ...) -> None: ...

class PutRecurringRequest(_message.Message):
    __slots__ = ("id", "rule", "version")
    ID_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    id: str
    rule: RecurringRule
    version: int
    def __init__(self, id: _Optional[str] = ..., rule: _Optional[_Union[RecurringRule, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...

class PutRecurringResponse(_message.Message):
    __slots__ = ("id", "version", "next", "words", "made")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    MADE_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: int
    next: _containers.RepeatedCompositeFieldContainer[_timestamp_pb2.Timestamp]
    words: str
    made: bool
    def __init__(self, id: _Optional[str] = ..., version: _Optional[int] = ..., next: _Optional[_Iterable[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]] = ..., words: _Optional[str] = ..., made: _Optional[bool] = ...) -> None: ...

class GetRecurringRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class Recurring(_message.Message):
    __slots__ = ("id", "version", "rule", "state", "error", "words", "next", "planted", "missed", "skipped", "last")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    PLANTED_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: int
    rule: RecurringRule
    state: str
    error: str
    words: str
    next: _containers.RepeatedCompositeFieldContainer[_timestamp_pb2.Timestamp]
    planted: int
    missed: int
    skipped: int
    last: _containers.RepeatedCompositeFieldContainer[Occurrence]
    def __init__(self, id: _Optional[str] = ..., version: _Optional[int] = ..., rule: _Optional[_Union[RecurringRule, _Mapping]] = ..., state: _Optional[str] = ..., error: _Optional[str] = ..., words: _Optional[str] = ..., next: _Optional[_Iterable[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]] = ..., planted: _Optional[int] = ..., missed: _Optional[int] = ..., skipped: _Optional[int] = ..., last: _Optional[_Iterable[_Union[Occurrence, _Mapping]]] = ...) -> None: ...

class Occurrence(_message.Message):
    __slots__ = ("at", "what", "id", "state")
    AT_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    at: _timestamp_pb2.Timestamp
    what: str
    id: str
    state: State
    def __init__(self, at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., what: _Optional[str] = ..., id: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ...) -> None: ...

class ListRecurringRequest(_message.Message):
    __slots__ = ("cursor", "limit")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    cursor: str
    limit: int
    def __init__(self, cursor: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListRecurringResponse(_message.Message):
    __slots__ = ("items", "next")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Recurring]
    next: str
    def __init__(self, items: _Optional[_Iterable[_Union[Recurring, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class DeleteRecurringRequest(_message.Message):
    __slots__ = ("id", "version")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: int
    def __init__(self, id: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class DeleteRecurringResponse(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...
