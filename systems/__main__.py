"""`python -m systems ticks`: a whole system with real servers, ended by a verdict."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import sys

from penstock.model.errors import PenstockError
from penstock.model.times import parse_duration
from systems.containers.system import Contained
from systems.output import Output
from systems.provide import running_server
from systems.run import Options, Running, nothing_held, run_system
from systems.spec import EXAMPLES, Spec, SpecError, read_spec

FOLDERS = {
    "ticks": {"": "ticks"},
    "sender": {"rabbitmq": "sender-rabbitmq", "nats": "sender-nats"},
    "sms": {"": "sms"},
    "dispatcher": {"": "dispatcher"},
    "scheduler": {"": "scheduler-service"},
}
"""System → broker → folder in examples/; the first broker is the default one."""


def main() -> int:
    asked = _parser().parse_args()
    brokers = FOLDERS[asked.system]
    broker = asked.broker or next(iter(brokers))
    if broker not in brokers:
        return _wrong(f"--broker: {asked.system} has {', '.join(filter(None, brokers)) or 'none'}")
    example = brokers[broker]
    try:
        spec = read_spec(example)
        if asked.servers and asked.containers:
            return 0
        if asked.servers:
            there = (asked.running and running_server(name) for name in spec.servers)
            print(*(name for name, found in zip(spec.servers, there, strict=True) if not found))
            return 0
        values = dict(_value(text, spec.values) for text in asked.set)
        seconds = None if asked.for_ is None else parse_duration(asked.for_, "--for") / 1000
    except (SpecError, PenstockError) as exc:
        return _wrong(str(exc))
    options = Options(EXAMPLES / example, seconds, asked.running, values, asked.keep, broker)
    return asyncio.run(_run(asked.system, spec, options, containers=asked.containers))


async def _run(name: str, spec: Spec, options: Options, *, containers: bool) -> int:
    module = importlib.import_module(f"systems.verdicts.{name}")
    output = Output()
    system = (Contained if containers else Running)(name, spec, options, output)
    drained = getattr(module, "drained", nothing_held)
    return await run_system(system, module.verdict, drained, output)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m systems", description=__doc__)
    parser.add_argument("system", choices=FOLDERS)
    parser.add_argument("--for", dest="for_", metavar="TIME", help="end after this [else: Ctrl-C]")
    parser.add_argument("--broker", metavar="NAME", help="sender: rabbitmq or nats")
    parser.add_argument(
        "--running", action="store_true", help="use servers that listen on their standard ports"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another value for a name in [values] of processes.toml",
    )
    parser.add_argument(
        "--containers", action="store_true", help="as its profile of compose.yaml, by Docker"
    )
    parser.add_argument("--keep", action="store_true", help="leave the temporary folder")
    parser.add_argument(
        "--servers", action="store_true", help="only name the servers it needs to start"
    )
    return parser


def _value(text: str, known: dict[str, str]) -> tuple[str, str]:
    name, is_there, value = text.partition("=")
    if not is_there or name not in known:
        names = ", ".join(known) or "none"
        raise SpecError(f"--set: must be NAME=VALUE with a name of [values] ({names}), not {text}")
    return name, value


def _wrong(text: str) -> int:
    print(f"systems: {text}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
