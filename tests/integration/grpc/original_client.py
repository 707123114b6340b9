"""A client of the scheduler service, with the service's own proto: `… original_client.py ADDRESS`.

Generates its code with grpcio-tools into the current folder and prints the code of each answer's
status as JSON. It must run without Penstock.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from grpc_tools import protoc  # type: ignore[import-untyped] # it has no types

COMMON = """
syntax = "proto3";
package common;
enum StatusCode {
  SUCCESS = 0; BAD_REQUEST = 1; CONFLICT = 2; INTERNAL_SERVER_ERROR = 3; NOT_FOUND = 4;
  NO_CONTENT = 5; RECORD_FOUND = 6;
}
message Status { StatusCode code = 1; string message = 2; }
"""
SCHEDULER = """
syntax = "proto3";
package scheduler.v1;
import "common/common.proto";
message ScheduleRequest {
  string event_id = 1; int64 execute_at = 2; bytes payload = 3; string topic = 4;
}
message ScheduleResponse { common.Status status = 1; }
message CancelRequest { string event_id = 1; }
message CancelResponse { common.Status status = 1; }
service SchedulerService {
  rpc Schedule(ScheduleRequest) returns (ScheduleResponse);
  rpc Cancel(CancelRequest) returns (CancelResponse);
}
"""
FILES = {"common/common.proto": COMMON, "scheduler/v1/scheduler.proto": SCHEDULER}

for name, text in FILES.items():
    Path(name).parent.mkdir(parents=True)
    Path(name).write_text(text)
failed = protoc.main(["protoc", "-I.", "--python_out=.", "--grpc_python_out=.", *FILES])
assert not failed
sys.path.insert(0, ".")

import grpc  # noqa: E402 - after the code it needs
from scheduler.v1 import scheduler_pb2 as pb  # type: ignore[import-not-found] # noqa: E402
from scheduler.v1 import scheduler_pb2_grpc  # noqa: E402

said: dict[str, int] = {}


def note(name: str, call: Any, request: Any) -> None:
    said[name] = call(request, timeout=300).status.code


with grpc.insecure_channel(sys.argv[1]) as channel:
    stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
    fields = {"event_id": "o-1", "payload": b"hello", "topic": "orders.new"}
    request = pb.ScheduleRequest(**fields, execute_at=int(time.time()) + 3600)
    note("schedule", stub.Schedule, request)
    note("again", stub.Schedule, request)
    note("no moment", stub.Schedule, pb.ScheduleRequest(**fields))
    note("cancel", stub.Cancel, pb.CancelRequest(event_id="o-1"))
    note("unknown", stub.Cancel, pb.CancelRequest(event_id="o-2"))
print(json.dumps(said))
