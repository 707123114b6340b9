"""A whole system from start to verdict.

Servers start first, then the processes in the order of processes.toml, each when the one before is
ready. The run ends after `--for`, at Ctrl-C, when every source has ended by itself, or when a
process dies. Then sources are stopped, the system drains, the others are stopped in reverse
order, servers last. A second Ctrl-C kills everything at once.

Plain asyncio subprocesses rather than honcho: honcho starts all processes together and ends all of
them when the first ends. Order, readiness, sources that end by themselves and a drain before the
stop would each have to be built around it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import httpx

from systems.children import Child, Usage
from systems.output import Output, readable
from systems.provide import HOST, Server, own_server, running_server
from systems.servers.ports import free_port
from systems.spec import LOG, Command, ServerName, Spec, SpecError, fill
from systems.verdict import Reports, Verdict, lines

READY_PATIENCE = 300.0
"""Seconds a process may take to be ready; a busy machine is slow, not broken."""
STOP_PATIENCE = 120.0
"""Seconds a process may take to end before it is killed."""
LOOK_AGAIN = 1.5
"""Seconds between the two looks that find a system drained."""
INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


Drained: TypeAlias = Callable[["Running"], Awaitable[bool]]
"""Whether everything that went in has come out."""


class Failed(Exception):
    """The run cannot go on; the text says why."""


class Stopped(Exception):
    """Asked to stop before everything had started."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to run a system."""

    folder: Path
    """The example; it is copied, so that nothing is written into it."""
    seconds: float | None = None
    """How long its sources run; None: until Ctrl-C, or until they end by themselves."""
    running: bool = False
    """Take servers that listen on their standard ports."""
    values: Mapping[str, str] | None = None
    """In place of those in [values]."""
    keep: bool = False
    """Leave the temporary folder."""
    broker: str = ""
    """Of a system that has several to choose from."""


class Running:
    """A system that runs; what `drained()` of a verdict module looks at."""

    def __init__(self, name: str, spec: Spec, options: Options, output: Output) -> None:
        self.name = name
        self.spec = spec
        self.words: dict[str, str] = {}
        """Addresses by name (`api`, `redis`, `redis_url`, …) and values."""
        self.children: list[Child] = []
        self.servers: list[Server] = []
        self.folder = Path(tempfile.mkdtemp(prefix=f"penstock-{name}-"))
        self.everything_runs = asyncio.Event()
        self._options = options
        self._output = output
        self._output.expect(name for process in spec.process for name in process.names)
        self._stopping = asyncio.Event()
        self._problems: list[str] = []
        self._dead: list[Child] = []
        """Children whose death was reported."""
        self._measured = 0.0
        self._cost: list[str] = []
        self._sampler: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._start_servers()
        self.words = self._words()
        example = self.folder / "example"
        ignored = shutil.ignore_patterns(".env", "__pycache__", "*.db*")
        shutil.copytree(self._options.folder, example, ignore=ignored)
        commands = self.spec.commands(example, self.words)
        self._sampler = asyncio.ensure_future(self._sample())
        for _, copies in groupby(commands, key=lambda command: command.spec.name):
            await self._start_copies(list(copies))
        if self.spec.dashboard is not None:
            where = fill(self.spec.dashboard, self.words, "dashboard")
            self._output.note(f"dashboard: {where}")
        self._measured = time.monotonic()
        for usage in self._usages().values():
            usage.begin()
        self.everything_runs.set()

    async def last(self) -> None:
        """Until its time is over, it is asked to stop, its sources have ended, or one died."""
        self._output.note(_until(self._options.seconds))
        sources = [child for child in self.children if child.command.spec.source]
        ends = [asyncio.ensure_future(self._all_ended(sources))] if sources else []
        deaths = asyncio.ensure_future(self._one_died())
        stopping = asyncio.ensure_future(self._stopping.wait())
        await _first([*ends, deaths, stopping], self._options.seconds)

    async def stop(self, drained: Drained) -> None:
        """Sources first, then a drain, then everything else in reverse order."""
        for usage in self._usages().values():
            usage.look()
        sources = [child for child in self.children if child.command.spec.source]
        await self._stop_children(sources)
        elapsed = time.monotonic() - self._measured
        self._cost = [
            f"{name:<12} {usage.seconds / elapsed:>6.0%} {usage.memory / 2**20:>8,.0f} MB"
            for name, usage in self._usages().items()
            if elapsed > 0
        ]
        if not self._problems:
            await self._drain(drained)
        named = groupby(reversed(self.children), key=lambda child: child.command.spec.name)
        for _, copies in named:
            await self._stop_children(list(copies))
        if self._sampler is not None:
            self._sampler.cancel()
        self._output.end_status()
        if self._options.keep:
            self._output.note(f"files are left in {self.folder}")

    async def stop_servers(self) -> None:
        for server in reversed(self.servers):
            if server.own is not None:
                await asyncio.to_thread(server.own.stop)
        self._remove_folder()

    def ask_to_stop(self) -> None:
        """Once: in order. Twice: at once."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._output.note("stopping; once more ends it at once")
            return
        self._output.end_status()
        self._output.problem("stopped at once, without a verdict")
        self.kill()
        os._exit(INTERRUPTED)

    def kill(self) -> None:
        """Leave nothing behind."""
        for child in self.children:
            child.kill()
        for server in self.servers:
            if server.own is not None:
                server.own.kill()
        self._remove_folder()

    async def ended(self) -> None:
        """After kill(): when all its children are gone."""
        if self._sampler is not None:
            self._sampler.cancel()
        self._output.end_status()
        await asyncio.gather(*(child.wait() for child in self.children if child.started))

    def costs(self) -> list[str]:
        """CPU of every process as a share of one core, from the start of the load to its end."""
        return [f"{'process':<12} {'CPU':>6} {'memory':>11}", *self._cost]

    def reports(self) -> Reports:
        found: dict[str, list[dict[str, Any]]] = {}
        for child in self.children:
            if not child.command.spec.report:
                continue
            said = child.report()
            if said is None:
                self._problem(f"{child.name} gave no report: its last line is no JSON object")
                continue
            found.setdefault(child.command.spec.name, []).append(said)
        return found

    @property
    def problems(self) -> Sequence[str]:
        """What went wrong, besides the verdict."""
        return self._problems

    @property
    def stopped(self) -> bool:
        return self._stopping.is_set()

    def rates(self) -> dict[str, int]:
        """By their words; copies are added up."""
        total: Counter[str] = Counter()
        # Along the path: what brings the load comes first.
        for child in sorted(self.children, key=lambda child: not child.command.spec.source):
            total.update(child.rates())
        return dict(total)

    async def stats(self) -> dict[str, Any]:
        """What /v1/stats at the dashboard's address says."""
        if self.spec.dashboard is None:
            return {}
        url = fill(self.spec.dashboard, self.words, "dashboard").rstrip("/")
        async with self.client() as client:
            answer = await client.get(f"{url}/v1/stats")
            answer.raise_for_status()
            said: dict[str, Any] = answer.json()
            return said

    def client(self, seconds: float = 10) -> httpx.AsyncClient:
        """For the system's own APIs, which let it in."""
        return httpx.AsyncClient(timeout=seconds)

    async def _start_servers(self) -> None:
        for name in self.spec.servers:
            self.servers.append(self._server(name))
        own = [server.name for server in self.servers if server.own is not None]
        if own:
            self._output.note(f"starting {', '.join(own)}")
        starts = [self._start_server(server) for server in self.servers]
        # All of them, also when one fails: nothing may be half started when the rest is stopped.
        results = await asyncio.gather(*starts, return_exceptions=True)
        for failed in results:
            if failed is not None:
                raise failed
        if self._stopping.is_set():
            raise Stopped

    def _server(self, name: ServerName) -> Server:
        found = running_server(name) if self._options.running else None
        try:
            return found or own_server(name, self.folder)
        except RuntimeError as exc:
            raise Failed(f"{name}: {exc}") from exc

    async def _start_server(self, server: Server) -> None:
        try:
            await asyncio.to_thread(server.start)
        except (RuntimeError, AssertionError, OSError, subprocess.SubprocessError) as exc:
            raise Failed(f"{server.name}: {exc}") from exc
        note = f" ({server.note})" if server.note else ""
        self._output.note(f"{server.name} answers at {server.address}{note}")

    def _words(self) -> dict[str, str]:
        words = {**self.spec.values, **(self._options.values or {})}
        words["suffix"] = f"-{secrets.token_hex(3)}" if self._options.running else ""
        words["secret"] = secrets.token_hex(32)
        for name in self.spec.ports:
            port = free_port()
            words |= {name: f"{HOST}:{port}", f"{name}_port": str(port)}
        for server in self.servers:
            words |= server.words()
        return words

    async def _start_copies(self, commands: list[Command]) -> None:
        if self._stopping.is_set():
            raise Stopped
        started = [Child(command, self._output.line) for command in commands]
        self.children += started
        for child in started:
            await child.start()
        for child in started:
            if child.command.spec.once:
                await self._run_to_its_end(child)
            elif child.command.ready is not None:
                await self._wait_ready(child, child.command.ready)

    async def _run_to_its_end(self, child: Child) -> None:
        code = await self._or_stopped(child.wait())
        if code != 0:
            self._report_death(child)
            raise Failed(f"{child.name} failed, and nothing after it can start")

    async def _wait_ready(self, child: Child, ready: str) -> None:
        waits = child.said_it_is_ready() if ready.startswith(LOG) else _answers(ready)
        coming = asyncio.ensure_future(self._or_stopped(waits))
        ended = asyncio.ensure_future(child.wait())
        deaths = asyncio.ensure_future(self._one_died())
        await _first([coming, ended, deaths], READY_PATIENCE)
        if coming.done() and not coming.cancelled():
            coming.result()
            return
        if _died(child):
            self._report_death(child)
        if self._problems:
            raise Failed(f"{child.name} was not ready when that happened")
        if child.running:
            raise Failed(f"{child.name} was not ready within {READY_PATIENCE:.0f} s ({ready})")

    async def _or_stopped(self, waits: Awaitable[Any]) -> Any:
        """The result; Stopped when it is asked to stop first."""
        work = asyncio.ensure_future(waits)
        await _first([work, asyncio.ensure_future(self._stopping.wait())])
        if work.cancelled():
            raise Stopped
        return work.result()

    async def _all_ended(self, sources: list[Child]) -> None:
        await asyncio.gather(*(source.wait() for source in sources))
        failed = [source for source in sources if source.returncode != 0]
        for source in failed:
            self._report_death(source)
        if not failed:
            self._output.note("every source has ended by itself")

    async def _one_died(self) -> None:
        """A process that was to run on, or a server."""
        while True:
            for child in self.children:
                if _died(child):
                    await child.wait()
                    self._report_death(child)
                    return
            for server in self.servers:
                if server.died:
                    assert server.own is not None
                    self._problem(f"{server.name} died; its last lines:\n{server.own.last_words()}")
                    return
            await asyncio.sleep(0.1)

    def _report_death(self, child: Child) -> None:
        if child in self._dead:
            return
        self._dead.append(child)
        said = "\n".join(f"    {readable(line)}" for line in child.last)
        code = f"exit code {child.returncode}"
        self._problem(
            f"{child.name} died ({code}); its last lines:\n{said or '    (it said nothing)'}"
        )

    def _problem(self, text: str) -> None:
        self._problems.append(text)
        self._output.problem(text)

    async def _drain(self, drained: Drained) -> None:
        self._output.note(f"the load has ended; draining, for at most {self.spec.drain}")
        work = asyncio.ensure_future(self._until_drained(drained))
        deaths = asyncio.ensure_future(self._one_died())
        await _first([work, deaths], self.spec.drain_seconds)
        if work.done() and not work.cancelled():
            work.result()
            self._output.note("drained")
        elif not self._problems:
            self._output.problem("not drained: the verdict counts what is still held as lost")

    async def _until_drained(self, drained: Drained) -> None:
        """Twice in a row: figures may be as old as the pause between two looks."""
        seen = 0
        while seen < 2:
            seen = seen + 1 if await _quietly(drained(self)) else 0
            await asyncio.sleep(LOOK_AGAIN if seen == 1 else 0.2)

    async def _stop_children(self, children: list[Child]) -> None:
        for child in children:
            if _died(child):
                self._report_death(child)
        asked = [child for child in children if child.running]
        for child in asked:
            child.ask_to_stop()
        await asyncio.gather(*(self._end(child) for child in asked))

    async def _end(self, child: Child) -> None:
        try:
            async with asyncio.timeout(STOP_PATIENCE):
                code = await child.wait()
        except TimeoutError:
            self._problem(f"{child.name} did not stop within {STOP_PATIENCE:.0f} s and was killed")
            child.kill()
            await child.wait()
            return
        if code not in {0, -signal.SIGINT, -signal.SIGTERM, INTERRUPTED, 128 + signal.SIGTERM}:
            self._report_death(child)

    async def _sample(self) -> None:
        """Once a second: what everything costs, and the line of rates."""
        while True:
            await asyncio.sleep(1)
            for usage in self._usages().values():
                usage.look()
            self._output.rates(self.rates())

    def _usages(self) -> dict[str, Usage]:
        found: dict[str, Usage | None] = {server.name: server.usage for server in self.servers}
        found |= {child.name: child.usage for child in self.children if not child.command.spec.once}
        return {name: usage for name, usage in found.items() if usage is not None}

    def _remove_folder(self) -> None:
        if not self._options.keep:
            shutil.rmtree(self.folder, ignore_errors=True)


async def run_system(
    system: Running, judge: Callable[[Reports], Verdict], drained: Drained, output: Output
) -> int:
    """Run it; the exit code: 0 only when the verdict holds and nothing went wrong besides."""
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, system.ask_to_stop)
    try:
        return await _run(system, judge, drained, output)
    finally:
        system.kill()
        await system.ended()


async def _run(
    system: Running, judge: Callable[[Reports], Verdict], drained: Drained, output: Output
) -> int:
    try:
        await system.start()
        await system.last()
    except Failed as exc:
        output.problem(str(exc))
        return 1
    except SpecError as exc:
        output.problem(str(exc))
        return 2
    except Stopped:
        output.note("stopped before everything had started: there is no verdict")
        return INTERRUPTED
    await system.stop(drained)
    await system.stop_servers()
    output.plain(["", *system.costs(), ""])
    reports = system.reports()
    if system.problems:
        output.plain([f"{system.name}: FAILED, no verdict (see above)"])
        return 1
    verdict = judge(reports)
    output.plain(lines(system.name, verdict))
    return 0 if verdict.holds else 1


async def nothing_held(system: Running) -> bool:
    """Whether the store holds nothing that is still to go out."""
    states = (await system.stats()).get("states", {})
    return not any(states.get(state) for state in ("scheduled", "leased"))


def _died(child: Child) -> bool:
    """Ended unasked; one that runs once and a source may end well."""
    code, spec = child.returncode, child.command.spec
    if code is None or child.stop_asked:
        return False
    return code != 0 or not (spec.once or spec.source)


async def _first(tasks: Sequence[asyncio.Future[Any]], seconds: float | None = None) -> None:
    """Until one of them is done or the time is over; those that are not done are cancelled."""
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _quietly(drained: Awaitable[bool]) -> bool:
    """An address that does not answer now may answer soon."""
    try:
        return await drained
    except httpx.HTTPError:
        return False


async def _answers(url: str) -> None:
    async with httpx.AsyncClient(timeout=5) as client:
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if (await client.get(url)).status_code == 200:
                    return
            await asyncio.sleep(0.1)


def _until(seconds: float | None) -> str:
    if seconds is None:
        return "everything runs; Ctrl-C stops it and gives the verdict"
    return f"everything runs, for {seconds:g} s; Ctrl-C stops it sooner"
