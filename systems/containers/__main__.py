"""`make containers`: every profile of compose.yaml in real containers, run to its verdict.

Published images are replaced by stand-ins of the same name (systems/containers/standins). The rest
is real: dockerd, Docker Compose, the steps of the Dockerfile, networks, volumes, health checks.

Images are built with the machine's network. Systems run in a network namespace of their own with
their dockerd, so that their ports are nobody else's; it ends with this program, and so do all
processes. Images stay in the cache folder for the next run (--clean removes them); containers,
networks and volumes do not.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from systems.containers.engine import Engine, compose_program, program, say
from systems.containers.images import build_images
from systems.run import Failed
from systems.servers.kafka import cache_folder
from systems.spec import ROOT

PROFILES = ("ticks", "sender-rabbitmq", "sender-nats", "sms", "dispatcher", "scheduler")
NEEDED = ("docker", "kafka", "dynamodb", "nats")
"""What scripts/install-servers installs."""


def main() -> int:
    asked = _parser().parse_args()
    folder = asked.folder or cache_folder() / "containers"
    engine = Engine(folder)
    signal.signal(signal.SIGTERM, _interrupted)
    signal.signal(signal.SIGHUP, _interrupted)
    try:
        if asked.stage == "build":
            return build_images(engine)
        if asked.stage == "run":
            return _run_profiles(engine, asked.profiles, asked.time)
        if asked.clean:
            shutil.rmtree(folder, ignore_errors=True)
            return 0
        return _all(engine, asked.profiles, asked.time)
    except Failed as exc:
        print(f"containers: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make containers", description=__doc__)
    parser.add_argument("profiles", nargs="*", help=f"[default: {' '.join(PROFILES)}]")
    parser.add_argument("--for", dest="time", default="20s", metavar="TIME", help="load, each")
    parser.add_argument("--clean", action="store_true", help="only remove images and base")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--stage", choices=("build", "run"), help=argparse.SUPPRESS)
    return parser


def _interrupted(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(number)


def _all(engine: Engine, profiles: Sequence[str], time_: str) -> int:
    wrong = set(profiles) - set(PROFILES)
    if wrong:
        raise Failed(f"no profile {', '.join(sorted(wrong))}; there are {', '.join(PROFILES)}")
    if os.geteuid() != 0:
        raise Failed("dockerd needs root: sudo make containers")
    engine.folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([ROOT / "scripts" / "install-servers", "--only", *NEEDED], check=True)
    compose_program(engine)
    code = _stage(engine, "build", [])
    if code:
        return code
    return _stage(engine, "run", ["--for", time_, *profiles], "--net")


def _stage(engine: Engine, stage: str, words: Sequence[str], *spaces: str) -> int:
    """Processes and mounts of a stage are in namespaces of their own and end with it."""
    unshare = [program("unshare"), "--pid", "--mount", *spaces, "--fork", "--kill-child"]
    own = [sys.executable, "-m", "systems.containers", "--folder", str(engine.folder)]
    own += ["--stage", stage]
    # In a session of its own: the terminal's Ctrl-C reaches this process alone, which passes it on.
    process = subprocess.Popen(
        [*unshare, "--mount-proc", *own, *words], cwd=ROOT, start_new_session=True
    )
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                for child in (
                    Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                ):
                    os.kill(int(child), signal.SIGINT)


def _run_profiles(engine: Engine, profiles: Sequence[str], time_: str) -> int:
    subprocess.run([program("ip"), "link", "set", "lo", "up"], check=True)
    results: dict[str, tuple[bool, list[str]]] = {}
    with engine.running(), tempfile.TemporaryDirectory(prefix="penstock-containers-") as work:
        environment = {
            **engine.environment,
            "PENSTOCK_COMPOSE": str(compose_program(engine)),
            "PENSTOCK_DOCKER_ENV": str(Path(work) / "docker.env"),
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
        }
        try:
            for profile in profiles or PROFILES:
                results[profile] = _run_profile(profile, time_, environment)
        finally:
            _print_table(results)
    return 0 if results and all(held for held, _ in results.values()) else 1


def _run_profile(
    profile: str, time_: str, environment: Mapping[str, str]
) -> tuple[bool, list[str]]:
    system, _, broker = profile.partition("-")
    words = [system, "--containers", "--for", time_, *(["--broker", broker] if broker else [])]
    say(f"profile {profile}")
    process = subprocess.Popen(
        [sys.executable, "-m", "systems", *words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    assert process.stdout is not None
    lines: list[str] = []
    interrupted = False
    while True:
        try:
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
                print(line, end="", flush=True)
            code = process.wait()
            break
        except KeyboardInterrupt:
            interrupted = True
            process.send_signal(signal.SIGINT)
    if interrupted:
        raise KeyboardInterrupt
    begins = [at for at, line in enumerate(lines) if line.startswith("Verdict of ")]
    verdict = lines[begins[-1] + 1 :] if begins else lines[-1:]
    return code == 0, verdict


def _print_table(results: Mapping[str, tuple[bool, list[str]]]) -> None:
    print("\nprofile            verdict")
    for profile, (held, lines) in results.items():
        print(f"{profile:<18} {'holds' if held else 'DOES NOT HOLD'}")
        for line in lines[:-1] if held else lines:
            print(f"{'':<18} {line}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
