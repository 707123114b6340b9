"""Several processes on one port: started, kept running, replaced one by one, stopped.

This process holds the ports and serves nothing. A connection that comes while a process is being
replaced waits in a socket that stays open here, so none is refused.
"""

from __future__ import annotations

import asyncio
import json as jsonlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from penstock.api.access import split_host_port
from penstock.api.http.listen import hold_shared, listen_shared
from penstock.cli import show
from penstock.cli.endings import how_it_ended
from penstock.cli.place import (
    MAX_LINE,
    PATIENCE,
    Ask,
    Begin,
    Collect,
    Collected,
    Ready,
    Told,
    lines,
    send,
)
from penstock.cli.process import SIGNALS, Roles
from penstock.model.backoff import Backoff
from penstock.model.errors import ConfigError
from penstock.model.times import format_duration
from penstock.settings import OFF, Examined, Settings
from penstock.settings.ports import PortRange
from penstock.telemetry.logs import setup_logging
from penstock.time.chance import given_or_fresh

log = logging.getLogger("penstock.process")

WAITS = Backoff(500, 30_000)
LONG = 30.0
"""Seconds: a process that lived this long had started well."""
START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]);"
    " from penstock.cli.member import main; main(int(sys.argv[1]))"
)


def run_processes(
    number: int,
    roles: Roles,
    found: Examined,
    config: Path | None,
    overrides: Mapping[str, object],
    *,
    json: bool = False,
) -> int:
    """Run until SIGINT or SIGTERM; return the exit code. SIGHUP replaces the processes one by one.

    `config` and `overrides` are where each process reads its settings, when it starts.
    """
    settings = found.sound()
    _check(settings, number)
    host, port = split_host_port(settings.api.http)
    listeners = listen_shared(host, port, "api.http", number)
    port = listeners[0].getsockname()[1]
    grpc, held = _grpc_port(settings)
    ports = {"api.http": _address(host, port), "api.grpc": grpc}
    begin = Begin(
        number=0,
        config=None if config is None else str(config),
        overrides={**overrides, **ports},
        worker=roles.worker,
        insecure=roles.insecure,
        listener=-1,
    )
    logs = settings.log
    handler = setup_logging(logs.level, logs.format, logs.file)
    try:
        with asyncio.Runner() as runner:  # uvloop knows no process groups
            return runner.run(Processes(listeners, begin, json=json).run())
    finally:
        handler.close()
        for one in (*listeners, *held):
            one.close()


def _check(settings: Settings, number: int) -> None:
    """Raise ConfigError for settings that several processes cannot share."""
    ports = settings.api.metrics
    if isinstance(ports, PortRange) and len(ports.ports) <= number:
        raise ConfigError(
            f"api.metrics: {number} processes need a range of at least {number + 1} ports (one is"
            " used while a process is replaced), or none: /metrics of the API is that of all"
        )


def _grpc_port(settings: Settings) -> tuple[str | None, list[socket.socket]]:
    """The address where the processes serve gRPC, and the sockets that keep that port for them."""
    where = settings.api.grpc
    if where == OFF:
        return where, []
    host, port = split_host_port(where)
    try:
        held = hold_shared(host, port, "api.grpc")
    except ConfigError as exc:
        if "grpc" in settings.api.model_fields_set:
            raise
        print(f"penstock: gRPC is not served: {exc.message}", file=sys.stderr)
        return OFF, []
    if "grpc" not in settings.api.model_fields_set:
        return None, [held]  # each finds out for itself whether gRPC is installed
    return _address(host, held.getsockname()[1]), [held]


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(eq=False)
class Running:
    """One process and its messages."""

    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    began: float
    ready: asyncio.Future[Ready]
    told: dict[int, asyncio.Future[msgspec.Raw]] = field(default_factory=dict)
    asked_to_stop: bool = False

    def stop(self, *, at_once: bool = False) -> None:
        """Tell it to finish what is in flight; a second call means at once."""
        if at_once or not self.asked_to_stop:
            self.asked_to_stop = True
            with suppress(ProcessLookupError):
                self.process.terminate()


class Processes:
    """Keeps a process running for every listener."""

    def __init__(
        self, listeners: Sequence[socket.socket], begin: Begin, *, json: bool = False
    ) -> None:
        self._listeners = listeners
        self._begin = begin
        self._json = json
        self._current: dict[int, Running] = {}
        """Number → the process that serves, or is about to."""
        self._all: set[Running] = set()
        self._stopping = asyncio.Event()
        self._renew = asyncio.Event()
        self._code = 0
        self._numbers = count()
        self._chance = given_or_fresh(None)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Run until a signal, or until a process cannot start; return the exit code."""
        self._on_signals()
        try:
            if await self._start_all():
                replacing = asyncio.create_task(self._replace_when_asked())
                keeping = [
                    asyncio.create_task(self._keep(number)) for number in sorted(self._current)
                ]
                await self._stopping.wait()
                replacing.cancel()
                log.info("stopping %d processes", len(self._current))
                await self._stop()
                await asyncio.gather(replacing, *keeping, return_exceptions=True)
        finally:
            await self._stop()
        return self._code

    async def _start_all(self) -> bool:
        """Start the first one alone: a problem that stops it would stop all, and is logged once."""
        first, *others = range(1, len(self._listeners) + 1)
        said = await self._started(first)
        if said is None:
            return False
        found = await asyncio.gather(*(self._started(number) for number in others))
        if None in found:
            return False
        self._announce(said)
        return True

    async def _started(self, number: int) -> Ready | None:
        """Start one and wait until it listens; None when it ended instead, or all are to stop."""
        running = self._current[number] = await self._start(number)
        said = await self._is_ready(running)
        if said is None and not self._stopping.is_set():
            self._code = running.process.returncode or 1
        return said

    async def _start(self, number: int) -> Running:
        ours, theirs = socket.socketpair()
        listener = self._listeners[number - 1]
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", START, str(theirs.fileno()), jsonlib.dumps(sys.path)),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), listener.fileno()),
                process_group=0,  # Ctrl-C reaches this process, which stops the others in order
            )
        reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE)
        loop = asyncio.get_running_loop()
        running = Running(process, reader, writer, loop.time(), loop.create_future())
        self._all.add(running)
        send(
            writer,
            msgspec.structs.replace(self._begin, number=number, listener=listener.fileno()),
        )
        self._do(self._listen(running))
        return running

    async def _listen(self, running: Running) -> None:
        """Read a process's messages until it has ended."""
        async for line in lines(running.reader):
            match line:
                case Ready() if not running.ready.done():
                    running.ready.set_result(line)
                case Ask(number):
                    self._do(self._answer(running, number))
                case Told(number, families) if number in running.told:
                    running.told.pop(number).set_result(families)
        running.writer.close()

    async def _answer(self, running: Running, asked: int) -> None:
        """Collect the metrics of every process; those that answer late are left out."""
        number = next(self._numbers)
        waiting: dict[str, asyncio.Future[msgspec.Raw]] = {}
        for name, one in sorted(self._current.items()):
            if one.ready.done() and not one.writer.is_closing():
                told = asyncio.get_running_loop().create_future()
                one.told[number] = waiting[str(name)] = told
                send(one.writer, Collect(number))
        if waiting:
            await asyncio.wait(waiting.values(), timeout=PATIENCE)
        for one in self._current.values():
            one.told.pop(number, None)
        found = {name: told.result() for name, told in waiting.items() if told.done()}
        send(running.writer, Collected(asked, found))

    async def _is_ready(self, running: Running) -> Ready | None:
        """Wait until the process listens; None when it ends first."""
        ended = asyncio.ensure_future(running.process.wait())
        waiting: list[asyncio.Future[Any]] = [running.ready, ended]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        return running.ready.result() if running.ready.done() else None

    async def _keep(self, number: int) -> None:
        """Restart a process that ends without having been told to stop."""
        failures = 0
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            running = self._current[number]
            code = await running.process.wait()
            self._all.discard(running)
            if self._stopping.is_set() or self._current[number] is not running:
                continue  # it was replaced
            failures = 1 if loop.time() - running.began >= LONG else failures + 1
            wait = WAITS.wait(failures, self._chance)
            log.warning(
                "process %d (pid %d) %s; another is started in %s",
                number,
                running.process.pid,
                how_it_ended(code),
                format_duration(wait),
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), wait / 1000)
                return
            self._current[number] = await self._start(number)

    async def _replace_when_asked(self) -> None:
        while True:
            await self._renew.wait()
            self._renew.clear()
            log.info("SIGHUP: replacing %d processes one by one", len(self._current))
            for number in sorted(self._current):
                if not await self._replaced(number):
                    break

    async def _replaced(self, number: int) -> bool:
        """Start a process beside the one that serves, and stop that one when the new one listens.

        Where the new one cannot start, the old one goes on, and so do all that follow.
        """
        new = await self._start(number)
        if await self._is_ready(new) is None:
            self._all.discard(new)
            log.error(
                "process %d: the one that was to replace it %s before it listened; the old ones"
                " go on. Its own lines above say why",
                number,
                how_it_ended(new.process.returncode or 0),
            )
            return False
        old, self._current[number] = self._current[number], new
        old.stop()
        await old.process.wait()
        log.info("process %d was replaced: pid %d in place of %d", number, *_pids(new, old))
        return True

    async def _stop(self) -> None:
        """Ask all of them to stop, and wait until they have."""
        running = [one for one in self._all if one.process.returncode is None]
        for one in running:
            one.stop()
        await asyncio.gather(*(one.process.wait() for one in running))

    def _announce(self, said: Ready) -> None:
        number = len(self._listeners)
        if self._json:
            show.as_json({**said.facts, "processes": number})
        else:
            show.as_text(*said.lines, f"  processes  {number}; SIGHUP replaces them one by one")

    def _on_signals(self) -> None:
        loop = asyncio.get_running_loop()

        def on_signal(number: signal.Signals) -> None:
            if not self._stopping.is_set():
                self._stopping.set()
                for one in self._all:
                    one.stop()
                return
            log.warning("stopping at once: a second signal came")
            for one in self._all:
                one.stop(at_once=True)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

        for number in SIGNALS:
            loop.add_signal_handler(number, on_signal, number)
        loop.add_signal_handler(signal.SIGHUP, self._renew.set)

    def _do(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _pids(*running: Running) -> tuple[int, ...]:
    return tuple(one.process.pid for one in running)
