"""A real PostgreSQL of our own: loopback, a free port, a temporary folder, a user not root."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from systems.servers.kafka import cache_folder
from systems.servers.ports import free_port
from systems.servers.process import START_PATIENCE, ServerProcess

USERS = ("postgres", "nobody")
"""Who runs the server when root starts it: PostgreSQL refuses root."""
SETTINGS = (
    "unix_socket_directories=",
    "listen_addresses=127.0.0.1",
    "max_connections=200",
    "shared_buffers=64MB",
    "logging_collector=off",
    "log_checkpoints=off",
)


def binaries() -> Path:
    """The folder of the newest PostgreSQL that Debian installed, or of the one on PATH."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: float(p.parts[-3])
    )
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    if on_path is None:
        raise RuntimeError("there is no PostgreSQL here: run scripts/install-servers")
    return Path(on_path).parent


class PostgresServer(ServerProcess):
    """One cluster with a database `penstock`, whose superuser `penstock` needs no password."""

    def __init__(
        self, folder: Path | None = None, *settings: str, standby_of: PostgresServer | None = None
    ) -> None:
        """With `standby_of` it begins as a copy of a running server and follows it."""
        super().__init__(folder or Path(tempfile.mkdtemp(prefix="penstock-postgres-")))
        self.port = free_port()
        self._settings = (*SETTINGS, f"port={self.port}", *settings)
        self._user = server_user()
        self._data = self.folder / "data"
        self._primary = standby_of

    @property
    def url(self) -> str:
        return f"postgresql://penstock@127.0.0.1:{self.port}/penstock"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def command(self) -> list[str]:
        options = [part for setting in self._settings for part in ("-c", setting)]
        return self._as_user([str(self._program("postgres")), "-D", str(self._data), *options])

    def start(self) -> None:
        """Return when it answers; after a kill -9 its children must be gone first."""
        deadline = time.monotonic() + START_PATIENCE
        while True:
            try:
                return super().start()
            except RuntimeError as exc:
                if "shared memory block" not in str(exc) or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def before_start(self) -> None:
        if self._data.exists():
            (self._data / "postmaster.pid").unlink(missing_ok=True)
            return
        if self._user is not None:
            for folder in (self.folder, *self.folder.parents):
                if folder == Path(tempfile.gettempdir()) or folder == folder.parent:
                    break
                folder.chmod(folder.stat().st_mode | 0o055)
            shutil.chown(self.folder, self._user)
        if self._primary is not None:
            self._run("pg_basebackup", "-D", str(self._data), "-h", "127.0.0.1", "-U", "penstock",
                      "-p", str(self._primary.port), "-R", "-c", "fast")  # fmt: skip
            return
        self._run("initdb", "-D", str(self._data), "-U", "penstock", "-A", "trust", "-N", "-E",
                  "UTF8", "--locale=C.UTF-8")  # fmt: skip

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                pass
        except OSError:
            return False
        done = self._psql("postgres", "SELECT 1 FROM pg_database WHERE datname = 'penstock'")
        if done.returncode == 0 and not done.stdout.strip():
            done = self._psql("postgres", "CREATE DATABASE penstock")
        return done.returncode == 0

    def sql(self, text: str) -> str:
        """What psql prints: rows without headings."""
        done = self._psql("penstock", text)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()

    def promote(self) -> None:
        """A standby begins to take writes; return when it does."""
        self.sql("SELECT pg_promote(true, 120)")

    def use_hba(self, lines: Sequence[str]) -> None:
        """Who may connect besides, and how; these lines come first."""
        file = self._data / "pg_hba.conf"
        file.write_text("\n".join([*lines, file.read_text()]))
        self.sql("SELECT pg_reload_conf()")

    def give(self, source: Path) -> Path:
        """A copy of the file that the server may read, and nobody else."""
        copy = self.folder / f"{source.parent.name}-{source.name}"
        shutil.copy(source, copy)
        copy.chmod(0o600)
        if self._user is not None:
            shutil.chown(copy, self._user)
        return copy

    def stop(self) -> None:
        """A fast shutdown: sessions are ended, what is committed is on the disk."""
        self._postmaster(signal.SIGINT)
        super().kill()

    def immediate(self) -> None:
        """A shutdown as after a power cut: recovery follows at the next start."""
        self._postmaster(signal.SIGQUIT)
        super().kill()

    def close(self) -> None:
        self.immediate()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _postmaster(self, how: signal.Signals) -> None:
        """The process that its own file names: what was started may be a wrapper around it."""
        if self._process is None:
            return
        with suppress(OSError, ValueError):
            text = (self._data / "postmaster.pid").read_text()
            os.kill(int(text.split()[0]), how)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(60)

    def _psql(self, database: str, text: str) -> subprocess.CompletedProcess[str]:
        command = [str(binaries() / "psql"), "-h", "127.0.0.1", "-p", str(self.port)]
        command += ["-U", "penstock", "-d", database, "-XAtqc", text]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")

    def _run(self, program: str, *arguments: str) -> None:
        command = self._as_user([str(self._program(program)), *arguments])
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder)
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")

    def _program(self, name: str) -> Path:
        return binaries() / name

    def _as_user(self, command: list[str]) -> list[str]:
        return as_user(self._user, command)


class OldestPostgres(PostgresServer):
    """The oldest PostgreSQL that works, from the jar of scripts/install-servers.

    Unpacked into the server's own folder, because another user runs it.
    """

    def __init__(self, *settings: str) -> None:
        super().__init__(None, *settings)
        self._unpacked = self.folder / "programs"

    def before_start(self) -> None:
        if not self._unpacked.exists():
            with zipfile.ZipFile(_oldest_jar()) as jar:
                name = next(name for name in jar.namelist() if name.endswith(".txz"))
                with jar.open(name) as packed, tarfile.open(fileobj=packed, mode="r:xz") as archive:
                    archive.extractall(self._unpacked, filter="tar")
        super().before_start()

    def _program(self, name: str) -> Path:
        return self._unpacked / "bin" / name


def _oldest_jar() -> Path:
    found = sorted((cache_folder() / "postgres13").glob("embedded-postgres-binaries-*.jar"))
    if not found:
        raise RuntimeError("there is no PostgreSQL 13 here: run scripts/install-servers")
    return found[0]


def is_oldest_postgres_at_hand() -> bool:
    """False where Maven Central could not be reached."""
    return not (cache_folder() / "postgres13.unreachable").exists()


def as_user(user: str | None, command: list[str]) -> list[str]:
    """The command as the user; None: as we are."""
    return command if user is None else ["setpriv", *_ids(user), *command]


def _ids(user: str) -> list[str]:
    entry = pwd.getpwnam(user)
    return [f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]


def server_user() -> str | None:
    """Who runs what refuses root. None: we are not root, and run it ourselves."""
    if os.geteuid() != 0:
        return None
    for name in USERS:
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise RuntimeError("PostgreSQL does not run as root, and there is no other user")


class PgBouncer(ServerProcess):
    """A pooler in transaction mode before a server, for the database and user `penstock`."""

    def __init__(self, server: PostgresServer, pool: int = 20) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="penstock-pgbouncer-")))
        self.port = free_port()
        self._server = server
        self._pool = pool
        self._user = server_user()

    @property
    def url(self) -> str:
        return f"postgresql://penstock@127.0.0.1:{self.port}/penstock"

    def command(self) -> list[str]:
        program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if program is None:
            raise RuntimeError("there is no PgBouncer here: run scripts/install-servers")
        return as_user(self._user, [program, str(self.folder / "pgbouncer.ini")])

    def before_start(self) -> None:
        (self.folder / "users.txt").write_text('"penstock" ""\n')
        (self.folder / "pgbouncer.ini").write_text(
            f"""[databases]
penstock = host=127.0.0.1 port={self._server.port} dbname=penstock
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = trust
auth_file = {self.folder}/users.txt
pool_mode = transaction
default_pool_size = {self._pool}
max_client_conn = 500
"""
        )
        if self._user is not None:
            for path in (self.folder, *self.folder.iterdir()):
                shutil.chown(path, self._user)

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
