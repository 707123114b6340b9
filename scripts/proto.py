"""Writes the Python code of every file in proto/ below src/; a test says when to run it again.

python scripts/proto.py
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc  # type: ignore[import-untyped] # it has no types

ROOT = Path(__file__).parents[1]
PROTO = ROOT / "proto"
MESSAGES = ("_pb2.py", "_pb2.pyi")
"""Messages and their types."""
STUBS = "_pb2_grpc.py"
"""The stubs of a service; of a file without a service they would be empty and are not made."""


def generate(into: Path) -> list[Path]:
    """The generated files below `into`, at the place their own imports expect them."""
    protos = sorted(PROTO.rglob("*.proto"))
    with_service = [path for path in protos if "\nservice " in path.read_text()]
    _compile(protos, f"--python_out={into}", f"--pyi_out={into}")
    _compile(with_service, f"--grpc_python_out={into}")
    made = [_made(into, path, suffix) for path in protos for suffix in MESSAGES]
    return made + [_made(into, path, STUBS) for path in with_service]


def _compile(protos: list[Path], *outputs: str) -> None:
    well_known = files("grpc_tools") / "_proto"
    paths = (f"--proto_path={PROTO}", f"--proto_path={well_known}")
    names = (str(path.relative_to(PROTO)) for path in protos)
    failed = protoc.main(["protoc", *paths, *outputs, *names])
    if failed:
        raise SystemExit(failed)


def _made(into: Path, proto: Path, suffix: str) -> Path:
    return into / str(proto.relative_to(PROTO)).replace(".proto", suffix)


def main() -> None:
    for made in generate(ROOT / "src"):
        print(made.relative_to(ROOT), file=sys.stderr)


if __name__ == "__main__":
    main()
