"""compose.yaml and the Dockerfile fit the settings, and nothing is open to the world."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import nats
import pytest
import yaml  # type: ignore[import-untyped] # its types are not worth a dependency
from typer.main import get_command

from penstock.cli.app import build
from penstock.settings import ApiSettings, Settings, WorkerSettings, load
from penstock.wiring import driver_problems
from systems.servers.nats import NatsServer
from systems.servers.ports import free_port
from tests.servers.penstock import run_penstock

ROOT = Path(__file__).parents[3]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = tuple(name for name, service in SERVICES.items() if service["image"] == "penstock")
OBSERVE = tuple(name for name, service in SERVICES.items() if service["profiles"] == ["observe"])
SERVERS = tuple(name for name in SERVICES if name not in (*OURS, *OBSERVE))
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
    return load(ROOT / mounted[f"{SERVICES['api']['working_dir']}/penstock.toml"])


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
        if re.search("PASS|TOKEN|SECRET|KEYS", variable):
            assert _VARIABLE.search(str(value)), variable
        for login in re.findall(r"//[^@/]*:([^@/]*)@(?!dynamodb:)", given(str(value))):
            assert login.startswith("made-up-"), variable
    for word in service.get("command", []):
        assert not _VARIABLE.search(word), "a command line can be read by every process"


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_time_to_end(name: str) -> None:
    seconds = {"30s": 30, "1m": 60}[SERVICES[name]["stop_grace_period"]]
    assert seconds * 1000 > 2 * WorkerSettings().shutdown, "Docker kills after 10 s by itself"


@pytest.mark.slow
async def test_the_health_checks_see_a_server_and_a_worker_that_are_ready(tmp_path: Path) -> None:
    """The very commands of compose.yaml and the Dockerfile, at the ports these processes have."""
    image = json.loads(re.findall(r"^ +CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)[0])
    worker = SERVICES["worker"]["healthcheck"]["test"][1:]
    api = SERVICES["api"]["healthcheck"]["test"][1:]
    assert SERVICES["worker"]["environment"]["PENSTOCK_WORKER__METRICS"].endswith(":9101")
    config = """
    store = "sqlite:///penstock.db"
    [api]
    http = "127.0.0.1:@PORT@"
    metrics = "127.0.0.1:{metrics}"
    tokens = ["a-token-of-the-test"]
    """
    metrics, nothing = free_port(), free_port()
    async with run_penstock(tmp_path, config.format(metrics=metrics)) as server:
        for command, written, port in (
            (image, "8700", server.port),
            (api, "8700", server.port),
            (worker, "9101", metrics),
        ):
            for at, code in ((port, 0), (nothing, 1)):
                words = [word.replace(f"/{written} ", f"/{at} ") for word in command]
                assert words != command
                process = await asyncio.create_subprocess_exec(
                    *words, stderr=asyncio.subprocess.DEVNULL
                )
                assert await asyncio.wait_for(process.wait(), 60) == code, words


@pytest.mark.parametrize("name", SERVICES)
def test_no_health_check_starts_a_python_or_a_virtual_machine(name: str) -> None:
    health = SERVICES[name].get("healthcheck", {})
    assert health.get("disable") or health["test"][1] in {"bash", "wget"} or name == "redis"


@pytest.mark.slow
async def test_redis_takes_its_password_by_standard_input(tmp_path: Path) -> None:
    shell, option, script = SERVICES["redis"]["command"]
    port = free_port()
    script = script.replace("$$", "$").replace("docker-entrypoint.sh ", "")
    script = script.replace("SETTINGS\n", f"SETTINGS\nport {port}\ndir {tmp_path}\n", 1)
    environment = {**os.environ, "REDIS_PASSWORD": "made-up"}
    process = await asyncio.create_subprocess_exec(
        shell, option, script, env=environment, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(60):
            while await _redis_says(port, "PING") != "-NOAUTH Authentication required.":  # noqa: ASYNC110 - a server that starts has no event
                await asyncio.sleep(0.05)
        assert await _redis_says(port, "AUTH made-up\r\nCONFIG GET maxmemory-policy") == "+OK"
        shown = Path(f"/proc/{process.pid}/cmdline").read_bytes()  # noqa: ASYNC240 - the kernel's own
        assert b"redis-server" in shown, "it has the shell's place, so signals reach it"
        assert b"made-up" not in shown
    finally:
        process.terminate()
        await process.wait()


async def _redis_says(port: int, command: str) -> str:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return ""
    writer.write(f"{command}\r\n".encode())
    said = await reader.readline()
    writer.close()
    return said.decode().strip()


@pytest.mark.slow
async def test_nats_takes_its_password_from_the_environment_and_syncs_always(
    tmp_path: Path,
) -> None:
    written = (ROOT / "deploy" / "nats.conf").read_text()
    port, http = free_port(), free_port()
    config = tmp_path / "nats.conf"
    own = written.replace("/data", str(tmp_path / "data")).replace("8222", str(http))
    config.write_text(f"port: {port}\n{own}")
    assert "sync_interval: always" in written
    binary = NatsServer(tmp_path).command()[0]
    for password in ("12e3456789", "made-up-password"):
        value = SERVICES["nats"]["environment"]["NATS_PASSWORD"]
        environment = {**os.environ, "NATS_PASSWORD": _VARIABLE.sub(password, value)}
        process = await asyncio.create_subprocess_exec(
            binary, "--config", str(config), env=environment, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            client = await nats.connect(
                f"nats://127.0.0.1:{port}",
                user="penstock",
                password=password,
                reconnect_time_wait=0.05,
                max_reconnect_attempts=1_000,
            )
            await client.jetstream().account_info()
            await client.close()
        finally:
            process.terminate()
            await process.wait()


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_limits(name: str) -> None:
    limits = SERVICES[name]["deploy"]["resources"]["limits"]
    assert set(limits) == {"cpus", "memory"}


@pytest.mark.parametrize("name", [name for name in (*SERVERS, *OBSERVE) if name != "dynamodb"])
def test_every_server_keeps_its_data_in_a_volume_and_says_when_it_is_well(name: str) -> None:
    mounted = [volume.split(":")[0] for volume in SERVICES[name]["volumes"]]
    volumes = {volume for volume in mounted if not volume.startswith("./")}
    assert volumes
    assert volumes <= set(COMPOSE["volumes"])
    assert all((ROOT / file).exists() for file in set(mounted) - volumes)
    assert SERVICES[name]["healthcheck"]["test"]
    assert not SERVICES[name]["image"].endswith(":latest")


@pytest.mark.parametrize("name", OURS)
def test_our_services_run_commands_that_exist(name: str) -> None:
    command = get_command(build())
    assert SERVICES[name]["command"][0] in command.commands  # type: ignore[attr-defined] # a group


@pytest.mark.parametrize("name", ["api", "worker"])
def test_penstock_on_every_server_waits_for_the_servers_of_its_profile(name: str) -> None:
    servers = {server for server in SERVERS if "penstock" in SERVICES[server]["profiles"]}
    assert set(SERVICES[name]["depends_on"]) == servers


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
    assert f"/dev/tcp/127.0.0.1/{http} " in DOCKERFILE
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
    assert "\ncontainers:" in makefile
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    script = scripts / "docker-env"
    script.write_text((ROOT / "scripts" / "docker-env").read_text())
    subprocess.run(["bash", str(script)], check=True, capture_output=True)
    made = (tmp_path / "docker.env").read_text()
    subprocess.run(["bash", str(script)], check=True, capture_output=True)
    assert (tmp_path / "docker.env").read_text() == made, "a second time changes nothing"
    (tmp_path / "docker.env").write_text("REDIS_PASSWORD=of-an-older-version\n")
    subprocess.run(["bash", str(script)], check=True, capture_output=True)
    added = (tmp_path / "docker.env").read_text()
    assert added.startswith("REDIS_PASSWORD=of-an-older-version\n")
    assert added.count("\n") == made.count("\n"), "what is missing is added"
    names = {match[1] for match in _VARIABLE.finditer((ROOT / "compose.yaml").read_text())}
    values = dict(line.split("=", 1) for line in made.splitlines())
    assert set(values) == names
    assert all(len(value) == 48 for value in values.values())
    assert len(set(values.values())) == len(values)
