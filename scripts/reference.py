"""Writes the parts of docs/reference/ that come from the code; a test says when to run it.

python scripts/reference.py
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.main import get_command

import penstock.settings
from penstock.api.verbs import VERBS, Verb
from penstock.brokers.address import LoginOptions
from penstock.brokers.kafka import KafkaOptions
from penstock.brokers.nats import NatsOptions
from penstock.brokers.rabbitmq import RabbitOptions
from penstock.cli.app import build
from penstock.cli.config_text import is_duration, plain
from penstock.cli.help import COMMON
from penstock.contrib import SYSTEMS, mounts
from penstock.model.times import format_duration
from penstock.sinks.kafka import KafkaSinkOptions
from penstock.sinks.rabbitmq import RabbitSinkOptions
from penstock.sinks.redis_streams import StreamOptions
from penstock.sinks.webhook import WebhookOptions
from penstock.sources.kafka import KafkaSourceOptions
from penstock.sources.nats import NatsSourceOptions
from penstock.sources.rabbitmq import RabbitSourceOptions

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.tables import PARTS, meanings

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
WIDTH = 80
STRUCT_FIELDS = "__struct_fields__"

CONFIG_HEAD = """# Settings

Read once at start. Strongest first: arguments (`--http`), the environment (`PENSTOCK_*`), `.env`, the TOML file
(`--config`, else `./penstock.toml`, else `/etc/penstock/penstock.toml`), defaults. In the environment, nested names are joined by two
underscores, lists and tables are JSON or, for lists, `a,b`; an empty variable counts as unset:

```sh
PENSTOCK_STORE=sqlite:////var/lib/penstock/penstock.db
PENSTOCK_API__HTTP=127.0.0.1:9000
PENSTOCK_API__TOKENS='[{"name": "ci", "secret": "…", "scope": "write"}]'
PENSTOCK_ROUTES__PUSH__SINK=https://example.com/hook
```

An unknown name in the file is an error that says what was probably meant. A `PENSTOCK_*` variable that is no setting is an error
if it is a near miss of one (`PENSTOCK_LOG_LEVEL`: did you mean `PENSTOCK_LOG__LEVEL`?), else a warning at start and in
`config check`; names of other programs in `.env` are left alone, and so is what Kubernetes sets beside a service called
`penstock`. `PENSTOCK_CONFIG`, `PENSTOCK_URL`,
`PENSTOCK_TOKEN` and `PENSTOCK_CA` are for the [command line](cli.md). Durations are seconds or `1500ms` `90s` `15m` `2h` `3d`.

`penstock init` writes a commented file to start from. `penstock config check` lists everything that is wrong and warns of what
may be (a policy for a route that is not configured); `penstock doctor` also connects to everything it names; `penstock config show` shows what is in force and where each
value came from, without secrets.

A secret, token or key that says `change-me` is a placeholder and is refused:
`python3 -c 'import secrets; print(secrets.token_urlsafe(32))'` makes one.
"""

CLI_HEAD = """# Command line

`penstock …` and `python -m penstock …` are the same. The message commands act on the store of the
[settings](config.md) directly, or on a running server with `--url`. Only commands that write something new (`schedule`;
`policy`, `suppression`, `room` and `recurring put`; `recurring import`) create a SQLite file that is not there, and only if what they write
is accepted.

A new folder: `penstock init` writes a commented `penstock.toml`, `penstock doctor` tries everything it names,
`penstock serve` starts. `penstock help dead redrive` explains a command. `penstock message list` and the like are the same as
`penstock list`.

## Settings and options that every command takes

Settings are read from `--config` (or `PENSTOCK_CONFIG`), else `./penstock.toml`, else `/etc/penstock/penstock.toml`; a server says at
its start which file it read. These options stand before or after the command:

```text
{common}
```

`--url`, `--token`, `--ca` and `--local` are for the commands that can act on a server.

## Exit codes and output

| exit code | means |
|---|---|
| 0 | done |
| 1 | failed: unknown id, already released, another version, server or store away, a store that is not sound, an answer other than yes |
| 2 | bad usage, a value that cannot be accepted, or bad settings |

An error is one sentence on stderr (`penstock: …`); bad settings have a line for each problem. A command line that cannot be read, such as one with an
unknown option or without an argument, is answered in up to four lines there: `Usage: …`, a hint where to find help, an empty line, `Error: …`. With
`--json` any error is `{"error": {"code", "message", "field"}}` on stderr, on one line, and what
is printed on stdout is the JSON of the [HTTP API](http.md), one value on one line: lists are
`{"items": […], "next": cursor or null}`; with `list --all` every message is a line of its own (NDJSON).

Times are RFC 3339 in UTC. On a terminal tables tell when a message is due from now ("in 59 min"); `--local` shows
times in the zone of this machine instead, with the offset. `--json` is always UTC. On a terminal states have colours
(`NO_COLOR=1` turns them off), ids are never folded or cut, and long texts end with `…`; without a terminal nothing is cut. Columns
that would be empty are left out.

## What asks first

`cancel` by filter or `--all`, `dead redrive`, `dead delete` by filter, `forget` and `room reset` count what they would change and
ask; `recurring delete` shows the rule and asks. `--yes` does not ask. Where there is no terminal to ask on they do nothing and exit 2 unless `--yes` is given, so a
script says `--yes`. `--dry-run` only counts and never asks. A message that is named by its id is changed without a question. `policy delete` and
`suppression delete`, which name one policy or list, ask on a terminal only.

## Values

A payload given as text is sent verbatim if it is JSON; other text becomes a JSON string (text that begins like JSON
and is not is refused). With `--content-type` it is sent as it is. `@FILE` in place of a payload, a policy or a suppression list
reads the file, `-` standard input; files that are not JSON are sent as they are. Text that begins with `@` is written
as JSON: `'"@home"'`. Labels are `--label NAME=VALUE` everywhere.

## Completion

`penstock --install-completion` sets up the shell it is called from (bash, zsh, fish, PowerShell); open a new shell after it.
`penstock --show-completion` prints the script. Commands, options, states and other fixed words are completed, and the names of routes,
policies, suppression lists, recurring rules and rooms: those of the settings and those in the store, or of the server at `--url`.

## Servers

`serve`, `api` and `worker` stop on SIGINT or SIGTERM: nothing more is claimed or accepted, what is in flight is
finished within `worker.shutdown`. A second signal ends them at once; nothing acknowledged is lost either way. Logs go
to stderr; the version, the settings file, the store, the routes, where it listens and a line to try go to stdout.
"""


def config_page() -> str:
    return CONFIG_HEAD + "".join(_sections())


def cli_page() -> str:
    pages = dict(_commands())
    _, _, common = pages["penstock"].partition(f"{COMMON}:\n")
    commands = (
        f"\n## `{name}`\n\n```text\n{page.partition(f'{COMMON}:')[0].rstrip()}\n```\n"
        for name, page in pages.items()
    )
    return CLI_HEAD.replace("{common}", common.rstrip()) + "".join(commands)


def http_page() -> str:
    """The page as it is, with the calls that the table of verbs has."""
    return filled((FOLDER / "http.md").read_text(), "calls", "".join(_calls()))


def pages_with_tables() -> dict[Path, str]:
    """Every page that has tables from the code between its marks."""
    found = {}
    for name, parts in PARTS.items():
        page = FOLDER.parent / name
        found[page] = page.read_text()
        for mark, table in parts.items():
            found[page] = filled(found[page], mark, table())
    return found


def filled(page: str, mark: str, words: str) -> str:
    """The page with what stands between its marks replaced."""
    if f"<!-- {mark} -->" not in page:
        raise LookupError(f"no place for {mark}")
    marks = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
    return marks.sub(lambda match: match[1] + words + match[2], page)


def _calls() -> Iterator[str]:
    everything = penstock.settings.given(contrib=[*SYSTEMS])
    yield "| call | scope | does | answers |\n|---|---|---|---|\n"
    verbs = [(verb, verb.words) for verb in VERBS]
    for mount in mounts(everything):
        verbs += [(verb, f"{verb.words} (with `{mount.name}`)") for verb in mount.verbs]
    for verb, words in verbs:
        answers = ", ".join(str(status) for status in verb.answers)
        yield f"| {_call(verb)} | {verb.scope} | {words} | {answers} |\n"


def _call(verb: Verb) -> str:
    query = "&".join(f"{name}=" for name in verb.parameters if name in verb.query)
    return f"`{verb.method} {verb.path}{'?' if query else ''}{query}`"


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
    words = meanings(part)
    rows = [
        f"| `{field.alias or name}` | {_default(name, field)} | {words[name]} |\n"
        for name, field in part.model_fields.items()
        if name in words
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
    return f"| `{name}` | {broker} | {where} | {shown} | {meanings(kind)[name]} |\n"


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


def _commands() -> Iterator[tuple[str, str]]:
    """Every command with its help."""
    root = get_command(build())
    settings = {**root.context_settings, "terminal_width": WIDTH}
    for path in [(), *_paths(root)]:
        command: Any = root
        context = command.context_class(command, info_name="penstock", **settings)
        for name in path:
            command = command.commands[name]
            context = command.context_class(command, info_name=name, parent=context)
        shown = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        yield " ".join(("penstock", *path)), shown.strip()


def _paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, below in getattr(command, "commands", {}).items():
        if below.hidden:
            continue
        if not hasattr(below, "commands"):
            yield (*path, name)
        yield from _paths(below, (*path, name))


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "config.md").write_text(config_page())
    (FOLDER / "cli.md").write_text(cli_page())
    (FOLDER / "http.md").write_text(http_page())
    for page, text in pages_with_tables().items():
        page.write_text(text)


if __name__ == "__main__":
    main()
