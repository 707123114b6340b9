"""Each peer's own environment: a virtual environment, an npm folder or a Go binary, made once.

They live in a cache folder outside the tree (PENSTOCK_CACHE names another), so that neither
Penstock's environment nor the tests ever see them. A change of the versions below makes anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ADAPTERS = Path(__file__).parent / "adapters"
MINUTES = 15
"""What making one may take."""

VERSIONS: dict[str, tuple[str, ...]] = {
    "celery": ("celery[redis]==5.7.0", "hiredis==3.5.0"),
    "rq": ("rq==2.12.0", "redis==8.1.0", "hiredis==3.5.0"),
    "arq": ("arq==0.28.0", "hiredis", "uvloop==0.23.0"),
    "dramatiq": ("dramatiq[redis]==2.2.1", "redis==8.1.0", "hiredis==3.5.0"),
    "huey": ("huey==3.5.4", "redis==8.1.0", "hiredis==3.5.0"),
    "taskiq": ("taskiq==0.13.0", "taskiq-redis==1.2.4", "hiredis", "uvloop==0.23.0"),
    "rabbitmq": ("aiormq==7.2.0", "uvloop==0.23.0"),
    "granian": ("granian==2.8.7", "uvloop==0.23.0"),
    "apscheduler3": ("apscheduler==3.11.3", "sqlalchemy==2.0.44"),
    "apscheduler4": (
        "apscheduler==4.0.0a6",
        "sqlalchemy==2.0.44",
        "aiosqlite==0.21.0",
        "sniffio==1.3.1",
    ),
    "bullmq": ("bullmq@6.7.0", "ioredis@6.0.0"),
    "bullmqpg": ("bullmq@6.7.0", "ioredis@6.0.0", "pg@8.23.1"),
    "pgboss": ("pg-boss@12.30.0",),
    "graphile": ("graphile-worker@0.18.0", "pg@8.23.1"),
    "procrastinate": ("procrastinate==3.10.0", "psycopg[binary]==3.3.9", "uvloop==0.23.0"),
    "asynq": ("github.com/hibiken/asynq@v0.26.0",),
    "river": (
        "github.com/riverqueue/river@v0.50.0",
        "github.com/riverqueue/river/riverdriver/riverpgxv5@v0.50.0",
    ),
}
"""What each is made of. Where no version is named, the peer's own requirement decides."""


class NotMade(RuntimeError):
    """An environment could not be made; the text says why."""


@dataclass(frozen=True)
class Environment:
    """A folder with everything a peer's adapter needs, and how to start something in it."""

    name: str
    folder: Path

    def program(self, word: str) -> str:
        """The path of one of its programs; of an interpreter on PATH only the name."""
        own = self.folder / "bin" / word
        return str(own) if own.exists() else word

    def versions(self) -> dict[str, str]:
        """What was installed, as it was written down then."""
        kept: dict[str, str] = json.loads((self.folder / "versions.json").read_text())
        return kept


def cache() -> Path:
    """Where servers and environments are kept, as scripts/install-servers has it."""
    fallback = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "penstock"
    return Path(os.environ.get("PENSTOCK_CACHE", fallback)) / "peers"


def environment(name: str) -> Environment:
    """The peer's environment, made if it is not there; penstock's and beanstalkd's is this one."""
    if name not in VERSIONS:
        return Environment(name, Path(sys.prefix))
    wanted = VERSIONS[name]
    kind = _kind(wanted[0])
    sources = [source.read_text() for source in _sources(name)]
    mark = hashlib.sha256(json.dumps([wanted, sources]).encode()).hexdigest()
    folder = cache() / name
    stamp = folder / ".stamp"
    if not stamp.exists() or stamp.read_text() != mark:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "versions.json").write_text(json.dumps(kind(name, folder, wanted)))
        stamp.write_text(mark)
    return Environment(name, folder)


def _kind(first: str) -> Callable[[str, Path, Sequence[str]], dict[str, str]]:
    if first.startswith("github.com/"):
        return _go
    return _node if "@" in first else _python


def _python(_name: str, folder: Path, wanted: Sequence[str]) -> dict[str, str]:
    _run([sys.executable, "-m", "venv", str(folder)], folder)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    _run([*pip, "install", "-q", *wanted], folder)
    listed = json.loads(_run([*pip, "list", "--format=json"], folder))
    return {one["name"]: one["version"] for one in listed if one["name"] != "pip"}


def _node(name: str, folder: Path, wanted: Sequence[str]) -> dict[str, str]:
    for source in _sources(name):  # a module is looked for beside the file that asks
        shutil.copy(source, folder)
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    _run(["npm", "install", "--silent", "--no-audit", "--no-fund", *wanted], folder)
    return {"node": _run(["node", "--version"], folder).strip(), **_named(wanted)}


def _go(name: str, folder: Path, wanted: Sequence[str]) -> dict[str, str]:
    for source in _sources(name):
        shutil.copy(source, folder)
    go = shutil.which("go") or "/usr/local/go/bin/go"
    _run([go, "mod", "init", f"peers/{name}"], folder)
    _run([go, "get", *wanted], folder)
    _run([go, "mod", "tidy"], folder)
    _run([go, "build", "-o", f"bin/{name}", "."], folder)
    return {"go": _run([go, "env", "GOVERSION"], folder).strip(), **_named(wanted)}


def _sources(name: str) -> list[Path]:
    """What has to be in the folder: the adapter, and what those of its language share.

    Python finds its adapters by their path, wherever they are.
    """
    adapters = [path for path in ADAPTERS.glob(f"{name}_*.*") if path.suffix != ".py"]
    return [*adapters, *(ADAPTERS / f"side{path.suffix}" for path in adapters)]


def _named(wanted: Sequence[str]) -> dict[str, str]:
    return dict(one.rpartition("@")[::2] for one in wanted)


def _run(command: Sequence[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=MINUTES * 60, check=True
        )
    except FileNotFoundError as exc:
        raise NotMade(f"{command[0]} is not on this machine") from exc
    except subprocess.TimeoutExpired as exc:
        raise NotMade(f"{' '.join(command[:4])} took more than {MINUTES} minutes") from exc
    except subprocess.CalledProcessError as exc:
        raise NotMade(f"{' '.join(command[:4])}: {(exc.stderr or exc.stdout)[-400:]}") from exc
    return done.stdout
