"""A system in containers: the profile of compose.yaml, ended by the same verdict.

`docker compose up` starts everything in its own order. This program follows each container's
output, stops the sources, waits for the drain, stops the rest and judges. The project is one of
its own (penstock-ticks …): its volumes are new, and go with it.

PENSTOCK_COMPOSE names another compose program than `docker compose`, PENSTOCK_DOCKER_ENV another
file of passwords than docker.env.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from systems.children import Child, Usage
from systems.output import Output
from systems.provide import HOST, STANDARD, Server
from systems.run import STOP_PATIENCE, Failed, Options, Running
from systems.spec import LOG, ROOT, Command, ProcessSpec, ServerName, Spec, fill

PUBLISHED: Mapping[ServerName, int] = {**STANDARD, "kafka": 9094}
"""Server → its port on loopback in compose.yaml."""
LOGINS: Mapping[ServerName, str] = {
    "redis": ":{REDIS_PASSWORD}@",
    "rabbitmq": "penstock:{RABBITMQ_PASSWORD}@",
    "nats": "penstock:{NATS_PASSWORD}@",
    "dynamodb": "",
    "kafka": "",
}


def service_name(profile: str, process: str) -> str:
    """What compose.yaml calls a process: ticks-worker, sms-sender, dispatcher."""
    return process if process.startswith(profile) else f"{profile}-{process}"


@dataclass(frozen=True, slots=True)
class Docker:
    """`docker` and `docker compose` for one project."""

    project: str
    profile: str
    secrets: Path

    def compose(self, *words: str) -> list[str]:
        program = os.environ.get("PENSTOCK_COMPOSE")
        begin = [program] if program else [_docker(), "compose"]
        where = ["--file", str(ROOT / "compose.yaml"), "--env-file", str(self.secrets)]
        return [*begin, *where, "-p", self.project, "--profile", self.profile, *words]

    def down(self) -> None:
        """Remove containers, network and volumes of the project."""
        words = self.compose("down", "--volumes", "--remove-orphans", "--timeout", "10")
        subprocess.run(words, check=False, capture_output=True)

    def containers(self) -> dict[str, list[dict[str, Any]]]:
        """Service → its containers as `docker inspect` shows them, by their numbers."""
        label = f"label=com.docker.compose.project={self.project}"
        ids = self.ask("ps", "--all", "--quiet", "--no-trunc", "--filter", label).split()
        found: dict[str, list[dict[str, Any]]] = {}
        for container in json.loads(self.ask("inspect", *ids)) if ids else []:
            service = container["Config"]["Labels"]["com.docker.compose.service"]
            found.setdefault(service, []).append(container)
        for copies in found.values():
            copies.sort(key=_number)
        return found

    @staticmethod
    def ask(*words: str) -> str:
        done = subprocess.run([_docker(), *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"docker {words[0]}: {done.stderr.strip()}")
        return done.stdout


def _docker() -> str:
    # Where both are, the distribution's fits the engine that systems.containers starts.
    path = os.pathsep.join(["/usr/bin", os.environ.get("PATH", "")])
    found = shutil.which("docker", path=path)
    if found is None:
        raise Failed("docker is not installed")
    return found


def _number(container: Mapping[str, Any]) -> int:
    return int(container["Config"]["Labels"]["com.docker.compose.container-number"])


class Container(Child):
    """A container of the system; its lines come from `docker logs`."""

    def __init__(self, command: Command, show: Any, found: Mapping[str, Any]) -> None:
        super().__init__(command, show)
        self._id: str = found["Id"]
        self._pid: int = found["State"]["Pid"]
        self._code: int | None = None
        self._ending: asyncio.Task[int] | None = None
        self._asked: list[subprocess.Popen[bytes]] = []

    async def start(self) -> None:
        """Follow it: it runs already."""
        await super().start()
        self.usage = Usage(self._pid) if self._pid else None
        self._ending = asyncio.ensure_future(self._ended())

    async def _ended(self) -> int:
        await super().wait()
        shown = ("inspect", "--format", "{{.State.ExitCode}} {{.RestartCount}}", self._id)
        try:
            code, restarts = (await asyncio.to_thread(Docker.ask, *shown)).split()
            self._code = int(code) or int(restarts)
        except Failed:  # it is removed already
            self._code = -signal.SIGKILL
        return self._code

    @property
    def returncode(self) -> int | None:
        return self._code

    @property
    def running(self) -> bool:
        return self._code is None

    async def wait(self) -> int:
        assert self._ending is not None
        return await asyncio.shield(self._ending)

    def ask_to_stop(self) -> None:
        """By the signal and with the time that compose.yaml gives it."""
        self.stop_asked = True
        words = [_docker(), "stop", "--time", str(int(STOP_PATIENCE)), self._id]
        self._asked.append(subprocess.Popen(words, stdout=subprocess.DEVNULL))

    def signal(self, number: signal.Signals) -> None:
        if self.running:
            Docker.ask("kill", "--signal", str(int(number)), self._id)

    def kill(self) -> None:
        super().kill()
        for asked in self._asked:
            asked.wait()


class ServerContainer:
    """A server of the profile, for the runner's table of costs."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self.pid: int = found["State"]["Pid"]
        self._id: str = found["Id"]
        self._waiting = subprocess.Popen(
            [_docker(), "wait", self._id], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    @property
    def running(self) -> bool:
        return self._waiting.poll() is None

    def start(self) -> None:
        """Compose has started it."""

    def last_words(self) -> str:
        return Docker.ask("logs", "--tail", "20", self._id)

    def stop(self) -> None:
        self.kill()

    def kill(self) -> None:
        self._waiting.kill()
        self._waiting.wait()


class Contained(Running):
    """A system in containers, run as `Running` runs its processes."""

    def __init__(self, name: str, spec: Spec, options: Options, output: Output) -> None:
        super().__init__(name, spec, options, output)
        self.profile = f"{name}-{options.broker}" if options.broker else name
        secrets = os.environ.get("PENSTOCK_DOCKER_ENV")
        self._secrets = Path(secrets) if secrets else ROOT / "docker.env"
        self._docker = Docker(f"penstock-{self.profile}", self.profile, self._secrets)

    async def start(self) -> None:
        make = [str(ROOT / "scripts" / "docker-env"), str(self._secrets)]
        await asyncio.to_thread(subprocess.run, make, check=True, stdout=subprocess.DEVNULL)
        self.words = self._container_words()
        self._output.note(f"docker compose --profile {self.profile} up")
        await self._up()
        found = await asyncio.to_thread(self._docker.containers)
        self._follow_servers(found)
        self._sampler = asyncio.ensure_future(self._sample())
        for process in self.spec.process:
            await self._follow(process, found.get(service_name(self.profile, process.name), []))
        if self.spec.dashboard is not None:
            where = fill(self.spec.dashboard, self.words, "dashboard")
            self._output.note(f"dashboard: {where}, with the token of {self._secrets.name}")
        self._measured = time.monotonic()
        for usage in self._usages().values():
            usage.begin()
        self.everything_runs.set()

    def client(self, seconds: float = 10) -> httpx.AsyncClient:
        bearer = f"Bearer {self._passwords()['PENSTOCK_TOKEN']}"
        return httpx.AsyncClient(timeout=seconds, headers={"authorization": bearer})

    async def stop_servers(self) -> None:
        await super().stop_servers()
        self._output.note("docker compose down --volumes")
        await asyncio.to_thread(self._docker.down)

    def kill(self) -> None:
        super().kill()
        self._docker.down()

    async def _up(self) -> None:
        """Compose's own lines are shown when it fails."""
        await asyncio.to_thread(self._docker.down)
        words = self._docker.compose("up", "--detach", *(["--build"] if _builds() else []))
        process = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            said, _ = await self._or_stopped(process.communicate())
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
        if process.returncode:
            raise Failed(f"docker compose up:\n{said.decode(errors='replace')[-3_000:]}")

    def _follow_servers(self, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        for name in self.spec.servers:
            if name not in found:
                raise Failed(f"compose.yaml: {name} is not in the profile {self.profile}")
            own = ServerContainer(found[name][0])
            address = f"{HOST}:{PUBLISHED[name]}"
            self.servers.append(Server(name, address, own, Usage(own.pid)))

    async def _follow(self, process: ProcessSpec, found: Sequence[Mapping[str, Any]]) -> None:
        if not found:
            raise Failed(f"compose.yaml: {process.name} is not in the profile {self.profile}")
        started = []
        for number, container in enumerate(found, 1):
            name = process.name if len(found) == 1 else f"{process.name}-{number}"
            argv = [_docker(), "logs", "--follow", container["Id"]]
            # The system's own are ready when compose says so; the world says so itself.
            logs = process.world and process.ready is not None and process.ready.startswith(LOG)
            ready = process.ready if logs else None
            command = Command(name, process, argv, ROOT, dict(os.environ), ready)
            started.append(Container(command, self._output.line, container))
        self.children += started
        for child in started:
            await child.start()
        for child in started:
            if process.once:
                await self._run_to_its_end(child)
            elif child.command.ready is not None:
                await self._wait_ready(child, child.command.ready)

    def _container_words(self) -> dict[str, str]:
        """Addresses as this machine reaches them: published ports, with the passwords."""
        words = {**self.spec.values, "suffix": "", "secret": self._passwords()["ROOMS_KEY"]}
        for name, port in self.spec.ports.items():
            words |= {name: f"{HOST}:{port}", f"{name}_port": str(port)}
        for server in self.spec.servers:
            login = LOGINS[server].format(**self._passwords())
            address = f"{login}{HOST}:{PUBLISHED[server]}"
            words |= Server(server, address).words()
        return words

    def _passwords(self) -> dict[str, str]:
        lines = self._secrets.read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


def _builds() -> bool:
    """systems.containers has built the image already, where it reaches the network."""
    return "PENSTOCK_COMPOSE" not in os.environ
