"""TLS of the servers: a certificate from files, reloaded when the files change."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from penstock.model.errors import ConfigError
from penstock.settings import ApiSettings
from penstock.tls import server_context

log = logging.getLogger("penstock.api")


class ServerTls:
    """The certificate of one server. `refresh` may be called as often as one likes."""

    def __init__(self, cert: Path, key: Path) -> None:
        """ConfigError names the file that cannot be used."""
        self._cert = cert
        self._key = key
        self._seen = self._stamp()
        self.context = self._load()

    def refresh(self) -> bool:
        """Load the files again if they have changed; True if a new certificate is used from now on.

        A certificate that cannot be loaded is logged, and the old one stays.
        """
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        self._seen = stamp
        try:
            self._load()  # a live context must not be left with half of a pair
            self.context.load_cert_chain(self._cert, self._key)
        except (ConfigError, OSError) as exc:
            log.error("the new certificate is not used, the old one stays: %s", exc)  # noqa: TRY400 - its trace tells nothing more
            return False
        log.info("using the new certificate in %s", self._cert)
        return True

    def pair(self) -> tuple[bytes, bytes]:
        """Key and certificates in PEM format."""
        return self._key.read_bytes(), self._cert.read_bytes()

    def _load(self) -> ssl.SSLContext:
        def wrong(reason: str, setting: str) -> ConfigError:
            return ConfigError(f"api.{setting}: {reason}", field=f"api.{setting}")

        return server_context(wrong, str(self._cert), str(self._key))

    def _stamp(self) -> tuple[object, ...]:
        """Changes when the files do."""
        found: list[object] = []
        for path in (self._cert, self._key):
            try:
                stat = path.stat()
                found.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
            except OSError as exc:
                found.append(exc.errno)
        return tuple(found)


def server_tls(api: ApiSettings) -> ServerTls | None:
    """The TLS files of the settings; None: they name no certificate, and the API speaks without
    TLS.
    """
    if api.tls_cert is None or api.tls_key is None:
        return None
    return ServerTls(api.tls_cert, api.tls_key)
