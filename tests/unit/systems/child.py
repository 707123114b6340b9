"""A process of a system under test: says it is ready, notes the signal that ends it, reports."""

import json
import signal
import sys
import time
from pathlib import Path
from types import FrameType

name, how = sys.argv[1], sys.argv[2]
NOTES = Path(sys.argv[3])


def note(text: str) -> None:
    with NOTES.open("a") as notes:
        notes.write(f"{name} {text}\n")


def end(number: int, _frame: FrameType | None) -> None:
    note(signal.Signals(number).name)
    print(json.dumps({"name": name}), flush=True)
    sys.exit(0)


for one in (signal.SIGINT, signal.SIGTERM):
    signal.signal(one, signal.SIG_IGN if how == "stubborn" else end)
note("starts")
print(f"{name} is ready", flush=True)
print("Handled things/s: 7", file=sys.stderr, flush=True)
if how == "ends":
    print(json.dumps({"name": name}), flush=True)
elif how == "dies":
    print("the last words", file=sys.stderr, flush=True)
    sys.exit(3)
else:
    while True:
        time.sleep(0.05)
