"""Writes docs/reference/config.md and cli.md from the code; a test says when to run it again.

python scripts/reference.py
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.main import get_command
from typer.testing import CliRunner

import penstock.settings
from penstock.brokers.address import LoginOptions
from penstock.brokers.kafka import KafkaOptions
from penstock.brokers.nats import NatsOptions
from penstock.brokers.rabbitmq import RabbitOptions
from penstock.cli.app import build
from penstock.cli.config_text import is_duration, plain
from penstock.model.times import format_duration
from penstock.sinks.kafka import KafkaSinkOptions
from penstock.sinks.rabbitmq import RabbitSinkOptions
from penstock.sinks.redis_streams import StreamOptions
from penstock.sinks.webhook import WebhookOptions
from penstock.sources.kafka import KafkaSourceOptions
from penstock.sources.nats import NatsSourceOptions
from penstock.sources.rabbitmq import RabbitSourceOptions

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
WIDTH = "80"
STRUCT_FIELDS = "__struct_fields__"

CONFIG_HEAD = """# Settings

Read once at start. Strongest first: arguments (`--http`), the environment (`PENSTOCK_*`), `.env`, the TOML file
(`--config`, else `penstock.toml` if it is there), defaults. In the environment, nested names are joined by two
underscores, lists and tables are JSON or, for lists, `a,b`; an empty variable counts as unset:

```sh
PENSTOCK_STORE=sqlite:////var/lib/penstock/penstock.db
PENSTOCK_API__HTTP=127.0.0.1:9000
PENSTOCK_API__TOKENS='[{"name": "ci", "secret": "…", "scope": "write"}]'
PENSTOCK_ROUTES__PUSH__SINK=https://example.com/hook
```

An unknown name is an error that says what was probably meant; names of other programs in `.env` are left alone, and
so is what Kubernetes sets beside a service called `penstock`. `PENSTOCK_CONFIG`, `PENSTOCK_URL`,
`PENSTOCK_TOKEN` and `PENSTOCK_CA` are for the [command line](cli.md). Durations are seconds or `1500ms` `90s` `15m` `2h` `3d`.

`penstock config check` lists everything that is wrong; `penstock config show` shows what is in force and where each
value came from, without secrets.

A secret, token or key that says `change-me` is a placeholder and is refused:
`python3 -c 'import secrets; print(secrets.token_urlsafe(32))'` makes one.
"""

CLI_HEAD = """# Command line

`penstock …` and `python -m penstock …` are the same. The message commands act on the store of the
[settings](config.md) directly, or on a running server with `--url` (or `PENSTOCK_URL`, with `--token` or
`PENSTOCK_TOKEN`, and `--ca` or `PENSTOCK_CA`); only `schedule` makes a store that is not there. `--config`, `--json`,
`--url`, `--token` and `--ca` stand before or after the command.

| exit code | means |
|---|---|
| 0 | done |
| 1 | failed: unknown id, already released, another version, server or store away, a store that is not sound |
| 2 | bad usage, a value that cannot be accepted, or bad settings |

Errors are one sentence on stderr. With `--json` they are `{"error": {"code", "message", "field"}}` on stderr, and what
is printed on stdout is the JSON of the [HTTP API](http.md), one value on one line: lists are
`{"items": […], "next": cursor or null}`; with `list --all` every message is a line of its own (NDJSON).

A payload given as text is sent verbatim if it is JSON; other text becomes a JSON string (text that begins like JSON
and is not is refused). With `--content-type` it is sent as it is. Files that are not JSON are sent as they are.

`serve`, `api` and `worker` stop on SIGINT or SIGTERM: nothing more is claimed or accepted, what is in flight is
finished within `worker.shutdown`. A second signal ends them at once; nothing acknowledged is lost either way. Logs go
to stderr; where it listens and a line to try go to stdout.
"""


def config_page() -> str:
    return CONFIG_HEAD + "".join(_sections())


def cli_page() -> str:
    return CLI_HEAD + "".join(_commands())


def _sections() -> Iterator[str]:
    tree = penstock.settings
    yield _section("Top level", tree.Settings, "Before the first `[section]`.")
    yield _section("[api]", tree.ApiSettings)
    yield _section("[[api.tokens]]", tree.TokenSettings, 'Or just the secret: `tokens = ["…"]`.')
    yield _section("[worker]", tree.WorkerSettings)
    more = "The route `default` always exists. Other settings of a route are its sink's own."
    yield _section("[routes.NAME]", tree.RouteSettings, more)
    more = "A broker whose records are messages. Other settings of a source are its driver's own."
    yield _section("[sources.NAME]", tree.SourceSettings, more)
    yield _drivers_own()
    yield _section("[limits]", tree.LimitSettings)
    yield _section("[rooms]", tree.RoomsSettings)
    yield _section("[[rooms.keys]]", tree.RoomKeySettings)
    yield _section("[log]", tree.LogSettings)


def _section(title: str, part: type[BaseModel], more: str = "") -> str:
    meanings = _meanings(part)
    rows = [
        f"| `{field.alias or name}` | {_default(name, field)} | {meanings[name]} |\n"
        for name, field in part.model_fields.items()
        if name in meanings
    ]
    intro = f"\n{more}\n" if more else ""
    return f"\n## `{title}`\n{intro}\n| setting | default | meaning |\n|---|---|---|\n" + "".join(
        rows
    )


OWN: dict[str, tuple[type[msgspec.Struct] | None, ...]] = {
    "Kafka": (KafkaOptions, KafkaSinkOptions, KafkaSourceOptions),
    "RabbitMQ": (RabbitOptions, RabbitSinkOptions, RabbitSourceOptions),
    "NATS": (NatsOptions, None, NatsSourceOptions),
    "Redis Streams": (None, StreamOptions, None),
    "webhooks": (None, WebhookOptions, None),
}
"""Broker → settings of routes and sources both, of routes, of sources."""
WHERE = ("route, source", "route", "source")


def _drivers_own() -> str:
    """What only some brokers know: in a route's or source's table, or in its URL's query."""
    rows = [_own_row(LoginOptions, name, "brokers", WHERE[0]) for name in _own_fields(LoginOptions)]
    for broker, kinds in OWN.items():
        for kind, where in zip(kinds, WHERE, strict=True):
            if kind is not None:
                rows += [_own_row(kind, name, broker, where) for name in _own_fields(kind)]
    return (
        "\n### Settings of drivers\n\nIn the table of a route or a source, or in the query of its URL"
        " (`?create_topic=true`), which wins; those of webhooks only in the table, since the query"
        " belongs to the receiver.\n\n| setting | driver | of a | default | meaning |\n"
        "|---|---|---|---|---|\n" + "".join(rows)
    )


def _own_fields(kind: type[msgspec.Struct]) -> list[str]:
    """Those it has itself, and not from what it is made of."""
    inherited = {name for base in kind.__bases__ for name in getattr(base, STRUCT_FIELDS, ())}
    return [name for name in kind.__struct_fields__ if name not in inherited]


def _own_row(kind: type[msgspec.Struct], name: str, broker: str, where: str) -> str:
    default = {field.name: field.default for field in msgspec.structs.fields(kind)}[name]
    shown = "–" if default is None or default == "" else f"`{json.dumps(default)}`"
    return f"| `{name}` | {broker} | {where} | {shown} | {_meanings(kind)[name]} |\n"


def _meanings(part: type[object]) -> dict[str, str]:
    """The text below each field, as the code has it."""
    (body,) = ast.parse(inspect.getsource(part)).body
    if not isinstance(body, ast.ClassDef):
        raise TypeError(f"{part} is not a class")
    found: dict[str, str] = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ):
                found[name] = " ".join(text.split()).replace("|", "\\|")
    return found


def _default(name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "–"
    if isinstance(value, int) and is_duration(field):
        return f'`"{format_duration(value)}"`'
    shown = plain(name, value)
    return f'`"{shown}"`' if isinstance(shown, str) else f"`{shown}`"


def _commands() -> Iterator[str]:
    app, runner = build(), CliRunner()
    for path in [(), *_paths(get_command(app))]:
        done = runner.invoke(app, [*path, "--help"], env={"COLUMNS": WIDTH}, prog_name="penstock")
        shown = "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())
        yield f"\n## `{' '.join(('penstock', *path))}`\n\n```text\n{shown}\n```\n"


def _paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, below in getattr(command, "commands", {}).items():
        if not hasattr(below, "commands"):
            yield (*path, name)
        yield from _paths(below, (*path, name))


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "config.md").write_text(config_page())
    (FOLDER / "cli.md").write_text(cli_page())


if __name__ == "__main__":
    main()
