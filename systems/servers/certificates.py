"""A certificate of our own for 127.0.0.1, by openssl; whoever trusts it names it as authority."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificate(NamedTuple):
    cert: Path
    key: Path


def make_certificate(folder: Path, name: str = "127.0.0.1") -> Certificate:
    """A server's, or with another name than the address a client's."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Certificate(folder / "cert.pem", folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"]
    command += ["-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-keyout", str(made.key), "-out", str(made.cert)]
    command += ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return made
