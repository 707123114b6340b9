"""A client that knows only the proto: `python foreign_client.py PROTO_FOLDER ADDRESS`.

Generates its own code with grpcio-tools into the current folder and prints what came of each call
as JSON. It must run without Penstock.
"""

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from grpc_tools import protoc  # type: ignore[import-untyped] # it has no types

folder, address = sys.argv[1:3]
failed = protoc.main(
    [
        "protoc",
        f"-I{folder}",
        f"-I{files('grpc_tools') / '_proto'}",
        "--python_out=.",
        "--grpc_python_out=.",
        "penstock/v1/scheduler.proto",
    ]
)
assert not failed
for package in ("penstock", "penstock/v1"):
    Path(package, "__init__.py").touch()
sys.path.insert(0, ".")

import grpc  # noqa: E402 - after the code it needs
from google.protobuf.duration_pb2 import Duration  # noqa: E402

from penstock.v1 import scheduler_pb2 as pb  # noqa: E402
from penstock.v1 import scheduler_pb2_grpc  # noqa: E402

assert Path(pb.__file__).is_relative_to(Path.cwd()), "this is Penstock's own"
said: dict[str, object] = {}


def note(name: str, call: Any, request: Any) -> Any:
    try:
        answer = call(request, timeout=300)
    except grpc.RpcError as exc:
        said[name] = exc.code().name
        return None
    said[name] = "OK"
    return answer


with grpc.insecure_channel(address) as channel:
    stub = scheduler_pb2_grpc.SchedulerStub(channel)
    later = Duration(seconds=3600)
    request = pb.ScheduleRequest(id="foreign", payload=b"hello", delay=later)
    first = note("schedule", stub.Schedule, request)
    again = note("again", stub.Schedule, request)
    said["answer"] = [first.id, pb.State.Name(first.state), first.duplicate, again.duplicate]
    note("invalid", stub.Schedule, pb.ScheduleRequest(priority=77))
    note("route", stub.Schedule, pb.ScheduleRequest(route="nowhere"))
    batch = note("batch", stub.ScheduleBatch, pb.ScheduleBatchRequest(messages=[request]))
    said["outcomes"] = [one.WhichOneof("result") for one in batch.outcomes]
    streamed = note(
        "stream",
        stub.ScheduleStream,
        (pb.ScheduleRequest(id=f"s{i}", delay=later) for i in range(1000)),
    )
    said["streamed"] = streamed.accepted
    note("get", stub.Get, pb.GetRequest(id="foreign"))
    note("move", stub.Reschedule, pb.RescheduleRequest(id="foreign", delay=Duration(seconds=60)))
    note("version", stub.Cancel, pb.CancelRequest(id="foreign", version=1))
    cancelled = note("cancel", stub.Cancel, pb.CancelRequest(id="foreign"))
    said["cancelled"] = pb.State.Name(cancelled.state)
    note("late", stub.Reschedule, pb.RescheduleRequest(id="foreign", delay=later))
    note("unknown", stub.Get, pb.GetRequest(id="never"))
print(json.dumps(said))
