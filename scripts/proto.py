"""Writes src/penstock/v1/ from proto/; a test says when to run it again.

python scripts/proto.py
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc  # type: ignore[import-untyped] # it has no types

ROOT = Path(__file__).parents[1]
PROTO = "penstock/v1/scheduler.proto"
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")
"""Messages, their types, and the stubs of the service."""


def generate(into: Path) -> list[Path]:
    """The generated files below `into`, at the place their own imports expect them."""
    well_known = files("grpc_tools") / "_proto"
    failed = protoc.main(
        [
            "protoc",
            f"--proto_path={ROOT / 'proto'}",
            f"--proto_path={well_known}",
            f"--python_out={into}",
            f"--pyi_out={into}",
            f"--grpc_python_out={into}",
            PROTO,
        ]
    )
    if failed:
        raise SystemExit(failed)
    return [into / PROTO.replace(".proto", suffix) for suffix in SUFFIXES]


def main() -> None:
    for made in generate(ROOT / "src"):
        print(made.relative_to(ROOT), file=sys.stderr)


if __name__ == "__main__":
    main()
