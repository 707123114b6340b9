"""compose.yaml and the Dockerfile fit the settings, and nothing is open to the world."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # its types are not worth a dependency
from typer.main import get_command

from penstock.cli.app import build
from penstock.settings import ApiSettings, Settings, load
from penstock.wiring import driver_problems

ROOT = Path(__file__).parents[3]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("api", "worker")
SERVERS = tuple(name for name in SERVICES if name not in OURS)
DOCKERFILE = (ROOT / "Dockerfile").read_text()
_VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(:\?[^}]*)?\}")


def given(text: str) -> str:
    """As compose replaces its variables."""
    return _VARIABLE.sub(lambda match: f"made-up-{match[1].lower()}", text)


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    """What Penstock reads inside its containers."""
    monkeypatch.chdir(tmp_path)
    for name, value in SERVICES["api"]["environment"].items():
        monkeypatch.setenv(name, given(value))
    mounted = dict(volume.split(":")[1::-1] for volume in SERVICES["api"]["volumes"])
    return load(ROOT / mounted[SERVICES["api"]["environment"]["PENSTOCK_CONFIG"]])


async def test_the_services_settings_are_right_and_every_address_has_its_driver(
    settings: Settings,
) -> None:
    assert await driver_problems(settings) == []
    assert settings.api.tokens, "it listens beyond loopback inside its container"


def test_every_address_is_a_service_of_the_file_at_a_port_it_has(settings: Settings) -> None:
    addresses = [settings.store, *(route.sink for route in settings.routes.values())]
    for source in settings.sources.values():
        addresses += [source.from_, *([source.dead_letter] if source.dead_letter else [])]
    hosts = [re.search(r"//(?:[^@/]*@)?([\w-]+):(\d+)", address) for address in addresses]
    assert {(host[1], host[2]) for host in hosts if host} == {
        ("redis", "6379"),
        ("kafka", "9092"),
        ("rabbitmq", "5672"),
        ("nats", "4222"),
    }
    assert "INSIDE://kafka:9092" in SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_published_on_loopback_only(name: str) -> None:
    for port in SERVICES[name].get("ports", ()):
        assert str(port).startswith("127.0.0.1:"), port


def test_no_variable_may_be_empty() -> None:
    for match in _VARIABLE.finditer((ROOT / "compose.yaml").read_text()):
        assert match[2], f"${match[1]} has no `:?`"


@pytest.mark.parametrize("name", SERVICES)
def test_no_secret_is_written_in_the_file(name: str) -> None:
    service = SERVICES[name]
    for variable, value in service.get("environment", {}).items():
        if re.search("PASS|TOKEN|SECRET", variable):
            assert _VARIABLE.search(str(value)), variable
    words = service.get("command", [])
    for word, following in zip(words, [*words, ""][1:], strict=True):
        if "pass" in word:
            assert _VARIABLE.search(f"{word} {following}"), word


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_limits(name: str) -> None:
    limits = SERVICES[name]["deploy"]["resources"]["limits"]
    assert set(limits) == {"cpus", "memory"}


@pytest.mark.parametrize("name", SERVERS)
def test_every_server_keeps_its_data_in_a_volume_and_says_when_it_is_well(name: str) -> None:
    volumes = [volume.split(":")[0] for volume in SERVICES[name]["volumes"]]
    assert set(volumes) <= set(COMPOSE["volumes"])
    assert volumes
    assert SERVICES[name]["healthcheck"]["test"]
    assert not SERVICES[name]["image"].endswith(":latest")


@pytest.mark.parametrize("name", OURS)
def test_our_services_run_commands_that_exist_and_wait_for_the_servers(name: str) -> None:
    command = get_command(build())
    assert SERVICES[name]["command"][0] in command.commands  # type: ignore[attr-defined] # a group
    assert set(SERVICES[name]["depends_on"]) == set(SERVERS)


def test_the_management_page_of_rabbitmq_is_there_on_loopback() -> None:
    assert "127.0.0.1:15672:15672" in SERVICES["rabbitmq"]["ports"]
    assert SERVICES["rabbitmq"]["image"].endswith("-management")


def test_the_image_is_built_in_stages_and_runs_as_nobody_special() -> None:
    stages = re.findall(r"^FROM (\S+)(?: AS (\w+))?$", DOCKERFILE, re.MULTILINE)
    assert len(stages) == 2
    assert f"COPY --from={stages[0][1]} " in DOCKERFILE
    users = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    assert users
    assert users[-1] not in {"root", "0"}
    assert "HEALTHCHECK" in DOCKERFILE.split("FROM")[-1]


def test_the_image_has_the_port_and_the_command_of_the_defaults() -> None:
    api = ApiSettings()
    http, grpc = (address.rpartition(":")[2] for address in (api.http, api.grpc))
    assert f"EXPOSE {http} {grpc}\n" in DOCKERFILE
    assert f"http://127.0.0.1:{http}/healthz" in DOCKERFILE
    assert 'ENTRYPOINT ["penstock"]' in DOCKERFILE


def test_what_the_image_copies_is_there_and_is_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    for name in (name for line in copied for name in line.split()):
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored


def test_make_has_the_commands_and_the_passwords_cover_every_variable(tmp_path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "\ndocker-up:" in makefile
    assert "\ndocker-down:" in makefile
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    script = scripts / "docker-env"
    script.write_text((ROOT / "scripts" / "docker-env").read_text())
    subprocess.run(["bash", str(script)], check=True, capture_output=True)
    made = (tmp_path / "docker.env").read_text()
    subprocess.run(["bash", str(script)], check=True, capture_output=True)
    assert (tmp_path / "docker.env").read_text() == made, "a second time changes nothing"
    names = {match[1] for match in _VARIABLE.finditer((ROOT / "compose.yaml").read_text())}
    values = dict(line.split("=", 1) for line in made.splitlines())
    assert set(values) == names
    assert all(len(value) == 48 for value in values.values())
    assert len(set(values.values())) == len(values)
