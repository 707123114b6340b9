"""A release has one version, and what deploys it can be read by what will read it."""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # its types are not worth a dependency

from penstock.settings import load
from penstock.version import __version__

ROOT = Path(__file__).parents[3]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
MANIFESTS = ROOT / "deploy" / "kubernetes" / "penstock.yaml"


def test_every_place_names_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    (image,) = re.findall(r'image\.version="(.+?)"', (ROOT / "Dockerfile").read_text())
    (changes, *_) = re.findall(
        r"^## \[(\d.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    pods = set(re.findall(r"image: penstock:(.+)", MANIFESTS.read_text()))
    assert {project, image, changes, *pods} == {__version__}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_starts_a_command_and_gives_it_time_to_stop(unit: Path) -> None:
    parsed = configparser.ConfigParser(interpolation=None, strict=True)
    parsed.optionxform = str  # type: ignore[assignment] # names are as systemd writes them
    parsed.read(unit)
    program, command = parsed["Service"]["ExecStart"].split()
    assert program == "/opt/penstock/bin/penstock"
    assert command in unit.stem or (command, unit.stem) == ("serve", "penstock")
    assert int(parsed["Service"]["TimeoutStopSec"]) > 10


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(MANIFESTS.read_text()))


def test_the_settings_of_the_manifests_are_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {one["kind"]: one for one in manifests()}
    for name, value in named["Secret"]["stringData"].items():
        monkeypatch.setenv(name, value)
    config = tmp_path / "penstock.toml"
    config.write_text(named["ConfigMap"]["data"]["penstock.toml"])
    settings = load(config)
    assert settings.api.http.endswith(":8700")
    assert settings.api.tokens
    assert "hook" in settings.routes


def test_a_pod_is_asked_where_it_listens_and_has_time_to_stop() -> None:
    deployments = [one for one in manifests() if one["kind"] == "Deployment"]
    assert {one["metadata"]["name"] for one in deployments} == {"penstock-api", "penstock-worker"}
    for deployment in deployments:
        pod = deployment["spec"]["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] > 10
        (container,) = pod["containers"]
        ports = {port["name"] for port in container["ports"]}
        for probe, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")):
            asked = container[probe]["httpGet"]
            assert (asked["path"], asked["port"] in ports) == (path, True)
