"""The generated code is that of the proto, and has what the contract names."""

from __future__ import annotations

from pathlib import Path

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
        *("Schedule", "ScheduleBatch", "ScheduleStream", "Get", "Cancel", "Reschedule")
    ]


def test_a_request_and_its_answer_have_the_fields_of_the_contract() -> None:
    asked = scheduler_pb2.ScheduleRequest.DESCRIPTOR
    assert [field.name for field in asked.fields] == [
        *("id", "route", "key", "payload", "content_type", "headers", "at", "delay"),
        *("expires", "priority", "labels", "topic", "on_conflict"),
    ]
    answer = scheduler_pb2.ScheduleResponse.DESCRIPTOR
    assert [field.name for field in answer.fields] == ["id", "state", "due", "duplicate"]


def test_every_state_and_conflict_has_its_word_on_the_wire() -> None:
    states = scheduler_pb2.State.keys()
    assert {f"STATE_{state.name}" for state in State} == set(states) - {"STATE_UNSPECIFIED"}
    words = scheduler_pb2.OnConflict.keys()
    known = {f"ON_CONFLICT_{word.name}" for word in OnConflict}
    assert known == set(words) - {"ON_CONFLICT_UNSPECIFIED"}
