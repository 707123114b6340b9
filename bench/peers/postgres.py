"""PostgreSQL of our own, where the machine has it: a fresh cluster on a free port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

from systems.servers.ports import free_port
from systems.servers.process import ServerProcess

NAME = "postgres"
"""Of the user it runs as where we are root, which it refuses, and of its own superuser."""


def programs() -> Path | None:
    """The folder of initdb and postgres, the newest there is; Debian has none of it on PATH."""
    on_path = shutil.which("initdb")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version)
    found = [Path(on_path)] if on_path else debian[-1:]
    return found[0].resolve().parent if found else None


def _version(path: Path) -> int:
    name = path.parts[-3]
    return int(name) if name.isdigit() else 0


class Postgres(ServerProcess):
    """As it comes; only what it listens on is said."""

    def __init__(self) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="penstock-postgres-")))
        found = programs()
        assert found is not None, "no PostgreSQL"
        self._bin = found
        self.port = free_port()
        self.url = f"postgres://{NAME}@127.0.0.1:{self.port}/{NAME}"

    def command(self) -> list[str]:
        listen = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        data = str(self.folder / "data")
        return [*self._as(), str(self._bin / "postgres"), "-D", data, "-p", str(self.port), *listen]

    def before_start(self) -> None:
        if os.getuid() == 0:
            user = pwd.getpwnam(NAME)
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        init = [str(self._bin / "initdb"), "-U", NAME, "-A", "trust", "-D", "data"]
        subprocess.run([*self._as(), *init], cwd=self.folder, capture_output=True, check=True)

    def answers(self) -> bool:
        asked = [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(asked, check=False).returncode == 0

    def used(self) -> int:
        """Bytes of the database on disk."""
        asked = [str(self._bin / "psql"), self.url, "-Atc", f"SELECT pg_database_size('{NAME}')"]
        return int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)

    def after_stop(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _as(self) -> list[str]:
        """Replaced by what follows, so that a signal reaches that."""
        if os.getuid():
            return []
        return ["setpriv", f"--reuid={NAME}", f"--regid={NAME}", "--init-groups"]
