"""Images without a registry: a stand-in for each that compose.yaml and the Dockerfile name.

The base is made by debootstrap, the rest by Debian's packages, the jars of scripts/install-servers
and nats-server of the Python packages, with the ports, commands and users of the published image.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from systems.containers.engine import Engine, compose_program, program, say
from systems.run import Failed
from systems.servers.dynamodb import dynamodb_jars
from systems.servers.kafka import kafka_jars
from systems.spec import ROOT

STANDINS = Path(__file__).parent / "standins"
BASE = "penstock-debian"
SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"
PIP_NAMES = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout")
NOT_REPLACED = ("prometheus", "grafana")
"""Images of the profile `observe`, which is not run."""
_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")


def build_images(engine: Engine) -> int:
    with engine.running(), tempfile.TemporaryDirectory(prefix="penstock-images-") as work:
        _base(engine, Path(work))
        for image in _images(engine):
            folder = image.partition(":")[0].rpartition("/")[2]
            if folder not in NOT_REPLACED:
                _stand_in(engine, image, folder, Path(work))
        say("building penstock from the Dockerfile")
        engine.docker("build", "--network", "host", "--tag", "penstock", str(ROOT))
        engine.docker("image", "prune", "--force")
    return 0


def _base(engine: Engine, work: Path) -> None:
    if engine.docker("image", "inspect", BASE, check=False).returncode == 0:
        return
    say(f"making a base image of Debian {SUITE}")
    root = work / "root"
    words = ["--variant=minbase", SUITE, str(root), MIRROR]
    done = subprocess.run(
        [program("debootstrap"), *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failed(f"debootstrap: {done.stdout[-2_000:]}")
    archives = subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE)
    subprocess.run(
        [program("docker"), "import", "-", BASE],
        stdin=archives.stdout,
        stdout=subprocess.DEVNULL,
        env=engine.environment,
        check=True,
    )
    if archives.wait():
        raise Failed(f"tar of {root} failed")
    shutil.rmtree(root)


def _images(engine: Engine) -> list[str]:
    """What the Dockerfile and compose.yaml name, penstock itself aside."""
    bases = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    services = _config(engine)["services"].values()
    return sorted({*bases, *(service["image"] for service in services)} - {"penstock"})


def _config(engine: Engine) -> dict[str, Any]:
    """compose.yaml as Compose reads it; which passwords it gets does not matter for that."""
    with tempfile.NamedTemporaryFile() as secrets:
        subprocess.run([ROOT / "scripts" / "docker-env", secrets.name], check=True, stdout=-3)
        words = ["--file", str(ROOT / "compose.yaml"), "--env-file", secrets.name]
        done = subprocess.run(
            [str(compose_program(engine)), *words, "--profile", "*", "config", "--format", "json"],
            env=engine.environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise Failed(f"compose.yaml: {done.stderr}")
    config: dict[str, Any] = json.loads(done.stdout)
    return config


def _stand_in(engine: Engine, image: str, folder: str, work: Path) -> None:
    if not (STANDINS / folder).is_dir():
        raise Failed(f"{image} has no stand-in in systems/containers/standins")
    context = work / folder
    shutil.copytree(STANDINS / folder, context)
    add = _ADDED.get(folder)
    if add is not None:
        add(context)
    say(f"building a stand-in for {image}")
    engine.docker("build", "--network", "host", "--tag", image, str(context))


def _add_python(context: Path) -> None:
    """How this machine's pip reaches its index, so that the same steps work in a container."""
    machine = context / "machine"
    machine.mkdir()
    said = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    found = dict(re.findall(r"^\S*?\.?([a-z-]+)='(.*)'$", said.stdout, re.MULTILINE))
    lines = [f"{name} = {found[name]}" for name in PIP_NAMES if name in found]
    shutil.copy(_AUTHORITIES, machine)
    lines.append(f"cert = {_AUTHORITIES}")
    (machine / "pip.conf").write_text("\n".join(["[global]", *lines, ""]))


def _add_kafka(context: Path) -> None:
    _copy_jars(kafka_jars(), context / "jars", "Kafka")


def _add_dynamodb(context: Path) -> None:
    jars = context / "jars"
    _copy_jars(dynamodb_jars(), jars, "DynamoDB Local")
    names = " ".join(sorted(f"DynamoDBLocal_lib/{jar.name}" for jar in jars.glob("*.jar")))
    main = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"
    # A line of a manifest has at most 72 bytes; one that goes on begins with a space.
    head = f"Class-Path: {names}"
    parts = [head[:70], *(f" {head[at : at + 69]}" for at in range(70, len(head), 69))]
    manifest = "\r\n".join(["Manifest-Version: 1.0", f"Main-Class: {main}", *parts, "", ""])
    with zipfile.ZipFile(context / "DynamoDBLocal.jar", "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", manifest)


def _copy_jars(jars: Path | None, to: Path, what: str) -> None:
    if jars is None:
        raise Failed(f"{what}: Maven Central was not reached, and there is no other stand-in")
    shutil.copytree(jars, to)


def _add_nats(context: Path) -> None:
    beside = Path(sys.executable).with_name("nats-server")
    shutil.copy(beside if beside.exists() else program("nats-server"), context)


_ADDED = {
    "python": _add_python,
    "kafka": _add_kafka,
    "dynamodb-local": _add_dynamodb,
    "nats": _add_nats,
}
