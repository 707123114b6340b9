"""Each profile of compose.yaml is the system of its processes.toml, and nothing else."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # its types are not worth a dependency

from systems.__main__ import FOLDERS as EXAMPLES
from systems.containers.images import NOT_REPLACED, STANDINS
from systems.containers.system import service_name
from systems.spec import ProcessSpec, fill, read_spec

ROOT = Path(__file__).parents[3]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "compose.yaml").read_text())[
    "services"
]
FOLDERS = {
    f"{system}-{broker}" if broker else system: folder
    for system, brokers in EXAMPLES.items()
    for broker, folder in brokers.items()
}
ADDRESSES = {
    "redis": "redis:6379",
    "kafka": "kafka:9092",
    "rabbitmq": "rabbitmq:5672",
    "nats": "nats:4222",
    "dynamodb": "dynamodb:8000",
}
ONCE = ("topics", "queues")
"""Services that provision what a lone machine makes at the first send."""
METRICS = "PENSTOCK_WORKER__METRICS"
SECRETS = ("PENSTOCK_ROOMS__KEYS",)


def of(profile: str) -> dict[str, dict[str, Any]]:
    return {name: service for name, service in SERVICES.items() if profile in service["profiles"]}


def own(profile: str) -> dict[str, dict[str, Any]]:
    """Its services that run Penstock."""
    return {name: one for name, one in of(profile).items() if one["image"] == "penstock"}


def service_of(profile: str, process: ProcessSpec) -> dict[str, Any]:
    return SERVICES[service_name(profile, process.name)]


def words(profile: str) -> dict[str, str]:
    spec = read_spec(FOLDERS[profile])
    known = {**spec.values, **ADDRESSES, "suffix": "", "secret": "", "copy": "1"}
    for name, port in spec.ports.items():
        known |= {name: f"127.0.0.1:{port}", f"{name}_port": str(port)}
    for name in spec.servers:
        host, _, port_ = ADDRESSES[name].partition(":")
        known |= {f"{name}_host": host, f"{name}_port": port_, f"{name}_url": f"{name}://{host}"}
    return known


def plain(value: str, profile: str) -> str:
    """Without logins, at the addresses of a lone machine."""
    value = re.sub(r"\$\{[^}]*\}", "", value)
    value = re.sub(r"//[^@/]*@", "//", value)
    value = re.sub(r"^(?:amqp|redis)://([^/?]+)(?:/0?)?$", r"\1", value)
    return re.sub(rf"(?:0\.0\.0\.0|{profile}(?:-[a-z]+)?)(?=:\d)", "127.0.0.1", value)


@pytest.mark.parametrize("profile", FOLDERS)
def test_a_profile_has_the_processes_of_its_system(profile: str) -> None:
    spec = read_spec(FOLDERS[profile])
    named = {service_name(profile, process.name) for process in spec.process}
    provision = {f"{profile}-{what}" for what in ONCE}
    assert set(own(profile)) - provision == named
    assert set(of(profile)) - set(own(profile)) == set(spec.servers)


@pytest.mark.parametrize("profile", FOLDERS)
def test_processes_run_the_same_commands_in_as_many_copies(profile: str) -> None:
    known = words(profile)
    for process in read_spec(FOLDERS[profile]).process:
        service = service_of(profile, process)
        asked = [fill(word, known, process.name) for word in shlex.split(process.run)]
        copies = process.copies
        if "{copy}" in process.run:  # copies in containers draw their names
            at = asked.index("--instance")
            del asked[at : at + 2]
        if "--instances" in asked:  # in containers each has one of its own
            at = asked.index("--instances")
            copies *= int(asked[at + 1])
            del asked[at : at + 2]
        command = list(service["command"])
        if "--host" in command:  # beyond loopback in a container
            at = command.index("--host")
            assert command[at + 1] == "0.0.0.0"
            del command[at : at + 2]
        assert ["penstock", *command] == asked
        assert service["deploy"].get("replicas", 1) == copies


@pytest.mark.parametrize("profile", FOLDERS)
def test_processes_have_the_same_settings_at_the_addresses_of_containers(profile: str) -> None:
    spec, known = read_spec(FOLDERS[profile]), words(profile)
    for process in spec.process:
        service = service_of(profile, process)
        environment = service.get("environment", {})
        for name, value in {**spec.env, **process.env}.items():
            if name in SECRETS:
                assert "${" in environment[name]
            elif name == "PENSTOCK_API__HTTP":
                assert environment[name] == "0.0.0.0:8700"
            elif name == METRICS:
                assert environment.get(name, "0.0.0.0:9101") == "0.0.0.0:9101"
            else:
                wanted = re.sub(r"//[^@/]*@", "//", fill(value, known, name))
                assert plain(str(environment[name]), profile) == wanted, (process.name, name)


@pytest.mark.parametrize("profile", FOLDERS)
def test_processes_read_the_settings_of_the_example_and_may_not_write_there(profile: str) -> None:
    for process in read_spec(FOLDERS[profile]).process:
        service = service_of(profile, process)
        assert service["volumes"] == ["./examples:/examples:ro"]
        assert service["read_only"]
        if service["command"][:2] != ["sim", "provider"]:
            folder = Path("/examples", FOLDERS[profile], process.config).parent
            assert Path(service["working_dir"]) == folder


@pytest.mark.parametrize("profile", FOLDERS)
def test_each_process_waits_for_those_before_it(profile: str) -> None:
    services = of(profile)
    before: set[str] = set(read_spec(FOLDERS[profile]).servers)
    for process in read_spec(FOLDERS[profile]).process:
        name = service_name(profile, process.name)
        if not process.once:
            assert before <= waits_for(name, services), name
        before.add(name)
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            assert other in services, f"{name} waits for {other}, which is not in its profile"
            runs_once = services[other]["restart"] == "no" and "stop_signal" not in services[other]
            no_health = services[other].get("healthcheck", {}).get("disable", False)
            wanted = "service_started" if no_health else "service_healthy"
            wanted = "service_completed_successfully" if runs_once else wanted
            assert how["condition"] == wanted, (name, other)


def waits_for(name: str, services: dict[str, dict[str, Any]]) -> set[str]:
    direct = set(services[name].get("depends_on", {}))
    return direct.union(*(waits_for(other, services) for other in direct))


@pytest.mark.parametrize("profile", FOLDERS)
def test_the_world_is_stopped_as_by_ctrl_c_and_is_not_restarted(profile: str) -> None:
    for process in read_spec(FOLDERS[profile]).process:
        service = service_of(profile, process)
        assert (service.get("stop_signal") == "SIGINT") == process.world
        assert (service["restart"] == "no") == (process.world or process.once)


@pytest.mark.parametrize("profile", FOLDERS)
def test_the_systems_own_ports_are_published(profile: str) -> None:
    published = [port for service in of(profile).values() for port in service.get("ports", ())]
    outside = [port.rpartition(":")[0] for port in published]
    assert len(outside) == len(set(outside)), "two services want one port"
    spec = read_spec(FOLDERS[profile])
    world = {process.name for process in spec.process if process.world}
    for name, port in spec.ports.items():
        assert (f"127.0.0.1:{port}" in outside) == (name not in world)


def test_every_image_has_a_stand_in_but_those_that_look_on() -> None:
    images = {service["image"] for service in SERVICES.values()} - {"penstock"}
    images |= set(re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    names = {image.partition(":")[0].rpartition("/")[2] for image in images}
    assert {path.name for path in STANDINS.iterdir()} == names - set(NOT_REPLACED)


def test_prometheus_reads_every_process_that_has_figures() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/compose.yml").read_text())
    found = {
        (name, place["port"])
        for job in config["scrape_configs"]
        for place in job["dns_sd_configs"]
        for name in place["names"]
    }
    wanted = set()
    for name, service in SERVICES.items():
        command, environment = service.get("command", [""]), service.get("environment", {})
        if command[0] in {"api", "serve"}:
            wanted.add((name, int(environment["PENSTOCK_API__HTTP"].rpartition(":")[2])))
        elif command[0] == "worker":
            wanted.add((name, int(environment[METRICS].rpartition(":")[2])))
    assert found == wanted
