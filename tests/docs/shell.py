"""The shell blocks of a page as one script, that runs in a folder and on ports of its own.

What such a script leaves out is listed here, with the reason, and nowhere else.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.docs.blocks import ROOT, Block, blocks

PROGRAMS = {
    "make": "each target has tests of its own, or takes minutes",
    "pip": "needs the package index",
    "docker": "needs Docker",
    "kubectl": "needs a cluster",
    "sudo": "needs root",
    "systemctl": "needs systemd",
    "journalctl": "needs systemd",
    "grpcurl": "is not installed; tests/integration/grpc calls the same methods",
}
"""Commands that no page's script has, whatever comes after them on their line."""

PAGES = {
    "CONTRIBUTING.md": "what a contributor runs takes minutes",
    "docs/benchmarks/peers.md": "benchmarks take hours",
    "docs/concepts/dynamodb.md": "needs DynamoDB; tests/integration/cli makes the same table",
    "docs/guides/brokers.md": "needs a Kafka record that was refused",
    "docs/guides/django.md": "needs a project of Django's; test_recipes runs its program",
    "docs/guides/flask.md": "needs PostgreSQL; test_recipes runs it there",
    "docs/run/docker.md": "needs Docker",
    "docs/systems/dispatcher.md": "needs Redis; tests/acceptance runs the system",
    "docs/systems/scheduler.md": "needs DynamoDB and Kafka; tests/acceptance runs the system",
    "docs/systems/sender.md": "needs NATS or RabbitMQ; tests/acceptance runs the system",
    "docs/systems/sms.md": "needs RabbitMQ; tests/acceptance runs the system",
    "docs/systems/ticks.md": "needs Redis and Kafka; tests/acceptance runs the system",
    "examples/dispatcher/README.md": "needs Redis; tests/acceptance runs the system",
    "examples/scheduler-service/README.md": "needs servers; tests/acceptance runs the system",
    "examples/sender-nats/README.md": "needs NATS; tests/acceptance runs the system",
    "examples/sender-rabbitmq/README.md": "needs RabbitMQ; tests/acceptance runs the system",
    "examples/sms/README.md": "needs RabbitMQ; tests/acceptance runs the system",
    "examples/ticks/README.md": "needs Redis and Kafka; tests/acceptance runs the system",
    "examples/ticket-sale/README.md": "docs/guides/ticket-sale.md shows the same commands",
}
"""Pages whose blocks are checked word by word only."""

LINES = {
    ".venv/bin/penstock version": "runs what pip has installed a line before",
    "python3 -m venv .venv": "only an install by pip follows",
    ". .venv/bin/activate": "the script has this environment already",
}
"""Single lines that are left out."""

SHORTER = {
    "--users 500 --within 10s": "--users 10 --within 200ms --session 100ms",
    "--users 300 --within 10s --session 2s": "--users 10 --within 200ms --session 100ms",
    "--update-interval 5 ": "--update-interval 1 --updates 1 ",
}
"""What would only take time."""

ASKS = (
    "cancel --",
    "dead delete",
    "dead redrive",
    "forget",
)
"""Commands that ask before they act: there is no terminal, so the script says yes."""

PRELUDE = r"""
set -eu
command python "$WARM.py" "$TMPDIR/warm" &
until test -S "$TMPDIR/warm"; do sleep 0.02; done
servers=0
stays() {  # a process that runs until Ctrl-C: wait until it says that it is there
    log=$(mktemp)
    "$@" > "$log" 2>&1 &
    begun=$!
    until grep -qE 'holds messages in|Taking POST|Running on|engine: ' "$log"; do
        kill -0 "$begun" || { cat "$log"; exit 1; }
        sleep 0.05
    done
}
warm() { command python -S -E "${WARM}_run.py" "$TMPDIR/warm" "$@"; }
penstock() {
    case "$*" in
        *--help) ;;
        serve* | api*)
            servers=$((servers + 1))
            if ((servers == 1)); then stays warm "$@"; else
                PENSTOCK_API__HTTP=$SPARE PENSTOCK_API__GRPC=off stays warm "$@"; fi
            return ;;
        worker* | monitor | "sim provider"*) stays warm "$@"; return ;;
        *--dry-run*) ;;
        "sim crowd"*) set -- "$@" --url "http://$PENSTOCK_API__HTTP" ;;
        @ASKS@) set -- "$@" --yes ;;
    esac
    warm "$@"
}
python() {
    case "$1" in
        shop.py) stays command python "$@" ;;
        *) command python "$@" ;;
    esac
}
flask() { stays command python -m flask "$@"; }
"""
"""Every wait ends with the test's own time limit."""


@dataclass(frozen=True)
class Ports:
    """What stands in for the ports that pages show."""

    api: int
    grpc: int
    receiver: int
    shop: int
    spare: int
    """For a second server, where a page starts one beside the first."""

    def put_into(self, text: str) -> str:
        shown = {8700: self.api, 8701: self.grpc, 9000: self.receiver, 8800: self.shop}
        return re.sub(r"\b(8700|8701|9000|8800)\b", lambda found: str(shown[int(found[0])]), text)


def commands(code: str) -> list[list[str]]:
    """The simple commands of a block, without comments, variables before them and redirections."""
    found: list[list[str]] = []
    for line in lines(code):
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>()")
        lexer.whitespace_split, lexer.commenters = True, "#"
        found.append([])
        for word in lexer:
            if set(word) <= set("|;&()"):
                found.append([])
            else:
                found[-1].append(word)
    return [words for one in found if (words := _bare(one))]


def lines(code: str) -> Iterator[str]:
    """Whole lines: one that ends inside a quotation, or with a backslash, goes on."""
    begun = ""
    for line in code.replace("\\\n", " ").splitlines():
        begun += line + "\n"
        try:
            shlex.split(begun, comments=True)
        except ValueError:
            continue
        yield begun
        begun = ""


def _bare(words: list[str]) -> list[str]:
    """Without `NAME=value` in front, and what follows a redirection."""
    for place, word in enumerate(words):
        if set(word) <= set("<>"):
            words = words[:place]
            break
    while words and re.fullmatch(r"[A-Z_0-9]+=.*", words[0], re.DOTALL):
        words = words[1:]
    return words


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def pages() -> dict[Path, list[Block]]:
    """The pages that have something to run, with their shell blocks."""
    found: dict[Path, list[Block]] = {}
    for block in blocks("sh"):
        if name_of(block.page) not in PAGES and any(_run(block)):
            found.setdefault(block.page, []).append(block)
    return found


def _run(block: Block) -> Iterator[str]:
    """The lines of a block that are run."""
    for line in lines(block.code):
        words = commands(line)
        program = words[0][0].rpartition("/")[2] if words else ""
        left_out = program in PROGRAMS or any(line.startswith(one) for one in LINES)
        if line.strip() and not left_out:
            yield line


def begins_a_server(shown: list[Block]) -> bool:
    """The page starts `penstock serve` or `penstock api` itself, on the usual port."""
    return any(
        words[:2] in (["penstock", "serve"], ["penstock", "api"])
        for block in shown
        for line in _run(block)
        if "=" not in line.split()[0]
        for words in commands(line)
    )


def begins_a_receiver(shown: list[Block]) -> bool:
    return any("sim provider --port 9000" in line for block in shown for line in _run(block))


def script(
    shown: list[Block], ports: Ports, *, before: str = "", after: str = "", around: bool = True
) -> str:
    """The blocks in their order, after a receiver and a server that no block starts."""
    code = "".join(line for block in shown for line in _run(block))
    for longer, shorter in SHORTER.items():
        code = code.replace(longer, shorter)
    code = ports.put_into(code.replace(".venv/bin/penstock", "penstock"))
    asks = " | ".join(f'"{words}"*' for words in ASKS)
    begun = ""
    if around and not begins_a_receiver(shown):
        begun += f"penstock sim provider --port {ports.receiver}\n"
    if around and not begins_a_server(shown):
        begun += "penstock serve\n"
    return PRELUDE.replace("@ASKS@", asks) + begun + before + code + after


def environment(folder: Path, ports: Ports) -> dict[str, str]:
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")},
        "PATH": paths,
        "PYTHONPATH": str(ROOT / "src"),
        "TMPDIR": str(folder),
        "PENSTOCK_API__HTTP": f"127.0.0.1:{ports.api}",
        "PENSTOCK_API__GRPC": f"127.0.0.1:{ports.grpc}",
        "PENSTOCK_WORKER__METRICS": "off",
        "SPARE": f"127.0.0.1:{ports.spare}",
        "WARM": str(Path(__file__).with_name("warm")),
    }


def run(code: str, folder: Path, env: dict[str, str]) -> None:
    """Run the script and end every process that it has left."""
    output = folder / "output.txt"
    with output.open("w") as out:
        process = subprocess.Popen(
            ["bash", "-c", code],
            cwd=folder,
            env=env,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            code_of_exit = process.wait(timeout=300)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert code_of_exit == 0, output.read_text()
