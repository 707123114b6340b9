"""A container engine of our own: Debian's dockerd, and Docker Compose built from its source.

dockerd has its socket and data root in the cache folder. It changes nothing of the machine's
network, and no other Docker of the machine is touched.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from systems.run import Failed

COMPOSE = "v2.40.3"
MODULE = "github.com/docker/compose/v2"
PATIENCE = 120.0
"""Seconds dockerd may take to answer."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A dockerd of our own."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "docker"

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if "DOCKER" not in name}
        kept = {name: value for name, value in kept.items() if not name.startswith("COMPOSE_")}
        return {
            **kept,
            "DOCKER_HOST": f"unix://{self._socket}",
            "DOCKER_CONFIG": str(self.folder / "config"),
            "DOCKER_BUILDKIT": "0",
        }

    @property
    def _socket(self) -> Path:
        return self.folder / "docker.sock"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """dockerd answers; afterwards it is gone, and so are containers, networks and volumes."""
        self.data.mkdir(parents=True, exist_ok=True)
        (self.folder / "docker.pid").unlink(missing_ok=True)
        exec_root = Path(tempfile.mkdtemp(prefix="penstock-docker-"))
        log = (self.folder / "dockerd.log").open("wb")
        command = [
            *(program("dockerd"), "--host", f"unix://{self._socket}"),
            *("--data-root", str(self.data), "--exec-root", str(exec_root)),
            *("--pidfile", str(self.folder / "docker.pid"), "--bridge", "none"),
            # The machine's firewall stays as it is: containers reach each other over a bridge,
            # and published ports go through docker-proxy.
            *("--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"),
        ]
        daemon = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            self._wait(daemon)
            yield
        finally:
            self._remove_leftovers()
            daemon.terminate()
            try:
                daemon.wait(60)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
            log.close()
            # dockerd leaves a mount of its own network namespace.
            own = str(exec_root / "netns" / "default")
            subprocess.run([program("umount"), own], check=False, capture_output=True)
            shutil.rmtree(exec_root, ignore_errors=True)

    def _wait(self, daemon: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if daemon.poll() is not None:
                break
            if self.docker("version", check=False).returncode == 0:
                return
            time.sleep(0.2)
        said = (self.folder / "dockerd.log").read_text(errors="replace")[-2_000:]
        raise Failed(f"dockerd does not answer; its log ends with\n{said}")

    def _remove_leftovers(self) -> None:
        """What a run that was cut off left; nothing after an ordinary one."""
        found = self.docker("ps", "--all", "--quiet", check=False).stdout.split()
        if found:
            self.docker("rm", "--force", "--volumes", *found, check=False)
        for kind in ("network", "volume"):
            self.docker(kind, "prune", "--force", check=False)

    def docker(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [program("docker"), *words],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise Failed(f"docker {words[0]}: {(done.stdout + done.stderr)[-3_000:]}")
        return done


def compose_program(engine: Engine) -> Path:
    """The compose program, built from its source when it is not in the cache folder."""
    binary = engine.folder.parent / f"docker-compose-{COMPOSE}"
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        raise Failed(f"Docker Compose {COMPOSE} is built with Go 1.24 or later: please install go")
    say(f"building Docker Compose {COMPOSE}, for some minutes")
    with tempfile.TemporaryDirectory(prefix="penstock-compose-") as name:
        work = Path(name)
        environment = {
            **os.environ,
            "GOPATH": str(work / "go"),
            "GOCACHE": str(work / "cache"),
            "GOFLAGS": "-buildvcs=false -modcacherw",
        }
        (work / "go.mod").write_text("module compose\n")

        def run(*words: str, cwd: Path) -> str:
            done = subprocess.run(
                [go, *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise Failed(f"go {words[0]}: {done.stderr[-2_000:]}")
            return done.stdout

        found = json.loads(run("mod", "download", "-json", f"{MODULE}@{COMPOSE}", cwd=work))
        version = f"-X {MODULE}/internal.Version={COMPOSE}"
        made = work / "docker-compose"
        build = ("build", "-trimpath", "-ldflags", f"-s -w {version}", "-o", str(made), "./cmd")
        run(*build, cwd=Path(found["Dir"]))
        shutil.move(made, binary)
    return binary


def program(name: str) -> str:
    """Debian's own first: its docker speaks the protocol of its dockerd."""
    here = os.pathsep.join(["/usr/bin", "/usr/sbin", "/bin", "/sbin", os.environ.get("PATH", "")])
    found = shutil.which(name, path=here)
    if found is None:
        raise Failed(f"no {name} on this machine: please install it")
    return found


def say(text: str) -> None:
    print(f"containers: {text}", flush=True)
