"""A system as its processes.toml describes it: servers, ports, values and processes in order.

Texts may name `{redis}`, `{api}` and the like: addresses (`host:port`) of servers and ports, and
what is in [values]. They are filled in when the servers run, by `Spec.commands`.
"""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from penstock.model.errors import PenstockError
from penstock.model.times import parse_duration

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
FILE = "processes.toml"
CONFIG = "penstock.toml"
LOG = "log:"
_NAME = re.compile(r"\{([a-z][a-z0-9_]*)\}")

ServerName = Literal["redis", "kafka", "rabbitmq", "nats", "dynamodb"]


class SpecError(Exception):
    """A processes.toml that cannot be run; the text names the file and the field."""


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One [[process]]."""

    name: str
    run: str
    """Its command line; `penstock` and `python` are those of this environment."""
    config: str = CONFIG
    """Settings file, relative to the example's folder; the process runs in that file's folder."""
    ready: str | None = None
    """`http://…` that must answer 200, or `log: text` that it must print: then the next starts."""
    env: dict[str, str] = {}
    """Of this process alone; wins over the system's."""
    copies: int = 1
    once: bool = False
    """Runs to its end before the next starts."""
    world: bool = False
    """Stands in for the world around the system."""
    source: bool = False
    """Brings the load: the first to be stopped."""
    report: bool = False
    """The last line of its standard output is one JSON object for the verdict."""

    @property
    def names(self) -> list[str]:
        """Of its copies: worker-1, worker-2."""
        numbers = range(1, self.copies + 1)
        return [self.name] if self.copies == 1 else [f"{self.name}-{n}" for n in numbers]


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One processes.toml."""

    process: list[ProcessSpec]
    """In the order in which they start."""
    servers: list[ServerName] = []
    dashboard: str | None = None
    ports: dict[str, int] = {}
    """Name → the port in the example; the runner takes free ones."""
    values: dict[str, str] = {}
    env: dict[str, str] = {}
    """Of every process."""
    drain: str = "60s"
    """How long the system may take to empty itself after its sources have stopped."""

    @property
    def drain_seconds(self) -> float:
        return parse_duration(self.drain, "drain") / 1000

    def commands(self, folder: Path, words: Mapping[str, str]) -> list[Command]:
        """Every process with its copies, its texts filled in; `folder` holds the example."""
        return [
            command for process in self.process for command in _copies(self, process, folder, words)
        ]


@dataclass(frozen=True, slots=True)
class Command:
    """One process that can be started."""

    name: str
    """With its number where there are copies: worker-1."""
    spec: ProcessSpec
    argv: list[str]
    folder: Path
    env: dict[str, str] = field(repr=False)
    ready: str | None


def read_spec(example: str) -> Spec:
    """The spec of examples/`example`; SpecError says what is wrong with it."""
    path = EXAMPLES / example / FILE
    try:
        return parse_spec(path.read_text())
    except FileNotFoundError as exc:
        raise SpecError(f"examples/{example}/{FILE} is not there") from exc
    except SpecError as exc:
        raise SpecError(f"examples/{example}/{FILE}: {exc}") from exc


def parse_spec(text: str) -> Spec:
    try:
        spec = msgspec.convert(tomllib.loads(text), Spec)
        _check(spec)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, PenstockError) as exc:
        raise SpecError(str(exc)) from exc
    return spec


def _check(spec: Spec) -> None:
    if spec.drain_seconds < 0:
        raise SpecError("drain: must not be negative")
    seen: set[str] = set()
    for process in spec.process:
        at = f"process {process.name!r}"
        if process.name in seen:
            raise SpecError(f"{at}: the name is used twice")
        seen.add(process.name)
        if process.copies < 1:
            raise SpecError(f"{at}: copies must be at least 1")
        if process.ready is not None and not process.ready.startswith(("http://", LOG)):
            raise SpecError(f"{at}: ready must be http://… or {LOG} …, not {process.ready!r}")
        if process.once and (process.source or process.ready is not None):
            raise SpecError(f"{at}: a process that runs once is neither a source nor has `ready`")
        if not shlex.split(process.run):
            raise SpecError(f"{at}: run is empty")
    taken = set(spec.servers) & (set(spec.ports) | set(spec.values)) | set(spec.ports) & set(
        spec.values
    )
    if taken:
        raise SpecError(f"{', '.join(sorted(taken))}: named more than once")


def _copies(
    spec: Spec, process: ProcessSpec, folder: Path, words: Mapping[str, str]
) -> list[Command]:
    config = folder / process.config
    commands = []
    for number, name in enumerate(process.names, 1):
        known = {**words, "copy": str(number)}
        at = f"process {name!r}"
        env = {
            key: fill(value, known, f"{at}, env {key}")
            for key, value in {**spec.env, **process.env}.items()
        }
        if config.name != CONFIG:
            env["PENSTOCK_CONFIG"] = config.name
        argv = [fill(word, known, f"{at}, run") for word in shlex.split(process.run)]
        ready = None if process.ready is None else fill(process.ready, known, f"{at}, ready")
        commands.append(Command(name, process, _program(argv), config.parent, env, ready))
    return commands


def fill(text: str, words: Mapping[str, str], at: str) -> str:
    """The text with its {names} replaced; SpecError names one that is not known."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in words:
            known = ", ".join(sorted(words))
            raise SpecError(f"{at}: {found[0]} is not known; known are {known}")
        return words[found[1]]

    return _NAME.sub(value, text)


def _program(argv: list[str]) -> list[str]:
    if argv[0] == "penstock":
        return [sys.executable, "-m", "penstock", *argv[1:]]
    return [sys.executable, *argv[1:]] if argv[0] == "python" else argv
