"""The generated code is that of the proto, and has what the contract names."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.descriptor import FieldDescriptor

from penstock.contrib.scheduler_service import common_pb2
from penstock.contrib.scheduler_service import scheduler_pb2 as original_pb2
from penstock.model.message import OnConflict
from penstock.model.state import State
from penstock.v1 import scheduler_pb2
from scripts import proto

ROOT = Path(__file__).parents[3]


def test_the_generated_code_is_current(tmp_path: Path) -> None:
    for made in proto.generate(tmp_path):
        committed = ROOT / "src" / made.relative_to(tmp_path)
        assert committed.read_text() == made.read_text(), "run: python scripts/proto.py"


def test_the_service_has_the_verbs_of_the_contract() -> None:
    service = scheduler_pb2.DESCRIPTOR.services_by_name["Scheduler"]
    assert service.full_name == "penstock.v1.Scheduler"
    assert [method.name for method in service.methods] == [
        *("Schedule", "ScheduleBatch", "ScheduleStream", "Get", "Cancel", "Reschedule"),
        *("Delete", "DeleteDead"),
        *("PutRecurring", "GetRecurring", "ListRecurring", "DeleteRecurring"),
    ]


def test_a_request_and_its_answer_have_the_fields_of_the_contract() -> None:
    asked = scheduler_pb2.ScheduleRequest.DESCRIPTOR
    assert [field.name for field in asked.fields] == [
        *("id", "route", "key", "payload", "content_type", "headers", "at", "delay"),
        *("expires", "priority", "labels", "topic", "on_conflict"),
    ]
    answer = scheduler_pb2.ScheduleResponse.DESCRIPTOR
    assert [field.name for field in answer.fields] == ["id", "state", "due", "duplicate"]


def test_the_original_scheduler_service_has_its_names_and_numbers() -> None:
    file = original_pb2.DESCRIPTOR
    service = file.services_by_name["SchedulerService"]
    assert service.full_name == "scheduler.v1.SchedulerService"
    assert [method.name for method in service.methods] == ["Schedule", "Cancel"]
    assert {
        name: [(field.name, field.number, field.type) for field in message.fields]
        for name, message in file.message_types_by_name.items()
    } == {
        "ScheduleRequest": [
            ("event_id", 1, FieldDescriptor.TYPE_STRING),
            ("execute_at", 2, FieldDescriptor.TYPE_INT64),
            ("payload", 3, FieldDescriptor.TYPE_BYTES),
            ("topic", 4, FieldDescriptor.TYPE_STRING),
        ],
        "ScheduleResponse": [("status", 1, FieldDescriptor.TYPE_MESSAGE)],
        "CancelRequest": [("event_id", 1, FieldDescriptor.TYPE_STRING)],
        "CancelResponse": [("status", 1, FieldDescriptor.TYPE_MESSAGE)],
    }
    assert common_pb2.Status.DESCRIPTOR.full_name == "common.Status"
    assert {field.name: field.number for field in common_pb2.Status.DESCRIPTOR.fields} == {
        "code": 1,
        "message": 2,
    }
    assert common_pb2.StatusCode.items() == [
        *(("SUCCESS", 0), ("BAD_REQUEST", 1), ("CONFLICT", 2), ("INTERNAL_SERVER_ERROR", 3)),
        *(("NOT_FOUND", 4), ("NO_CONTENT", 5), ("RECORD_FOUND", 6)),
    ]


def test_every_state_and_conflict_has_its_word_on_the_wire() -> None:
    states = scheduler_pb2.State.keys()
    assert {f"STATE_{state.name}" for state in State} == set(states) - {"STATE_UNSPECIFIED"}
    words = scheduler_pb2.OnConflict.keys()
    known = {f"ON_CONFLICT_{word.name}" for word in OnConflict}
    assert known == set(words) - {"ON_CONFLICT_UNSPECIFIED"}
