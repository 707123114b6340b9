"""Recurring rules: make them, look at them, pause, trigger, backfill; a crontab becomes rules."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import msgspec
import typer

from penstock.cli import names, plain, show
from penstock.cli.options import (
    ContentType,
    Headers,
    LabelOptions,
    PayloadText,
    Yes,
    body,
    headers,
    labels,
    read_argument,
)
from penstock.cli.plain import VersionOption
from penstock.cli.session import Session, command, confirm, group, must_ask
from penstock.model.errors import InvalidMessage, Malformed, UnknownThing
from penstock.model.message import Labels
from penstock.model.recurrence import Rule, canonical
from penstock.model.recurrence_view import (
    Backfilled,
    RecurringOut,
    RuleDeleted,
    RulePage,
    Triggered,
    rule_of,
)
from penstock.model.times import parse_moment

if TYPE_CHECKING:
    from penstock.api.verbs import Verb
    from penstock.cli.session import Verbs
    from penstock.model.crontab import CrontabRule
    from penstock.sdk.recurring import RuleFields

app = typer.Typer(no_args_is_help=True)
group(app, "Recurring rules: every weekday at nine, every fifteen minutes.")
imports = typer.Typer(no_args_is_help=True)
group(imports, "Take over rules of another scheduler.")
app.add_typer(imports, name="import")

PAGE = 1_000
CHANGED = "changed"
NO_MOMENT = "  no moment is left: it has ended, or reached its limit"
RuleArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The rule's id.", autocompletion=names.rules)
]
CronOption = Annotated[
    str | None,
    typer.Option(
        "--cron", metavar="EXPRESSION", help='Minute hour day month weekday: "0 9 * * 1".'
    ),
]
EveryOption = Annotated[
    str | None,
    typer.Option("--every", metavar="DURATION", help="The interval, at least 1s: 15m."),
]
ZoneOption = Annotated[
    str | None, typer.Option("--zone", metavar="ZONE", help="The zone of --cron [default: UTC].")
]
StartOption = Annotated[
    str | None, typer.Option("--start", metavar="TIME", help="Not before (RFC 3339).")
]
EndOption = Annotated[
    str | None, typer.Option("--end", metavar="TIME", help="Not after (RFC 3339).")
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, help="Stop after so many messages.")
]
AnchorOption = Annotated[
    str | None,
    typer.Option(
        "--anchor", metavar="TIME", help="The moment that --every counts from [default: 1970]."
    ),
]


@command(app, remote=True)
async def put(
    session: Session,
    rule: RuleArgument,
    written: Annotated[
        str | None,
        typer.Argument(
            metavar="JSON|@FILE|-", help="The rule; @FILE reads a file, - standard input."
        ),
    ] = None,
    cron: CronOption = None,
    every: EveryOption = None,
    anchor: AnchorOption = None,
    zone: ZoneOption = None,
    route: Annotated[
        str | None,
        typer.Option(metavar="ROUTE", help="The route to send it by.", autocompletion=names.routes),
    ] = None,
    payload: PayloadText = None,
    content_type: ContentType = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The recipient or subject of its messages.")
    ] = None,
    header: Headers = None,
    label: LabelOptions = None,
    priority: Annotated[
        int | None,
        typer.Option("--priority", metavar="N", min=0, max=9, help="9 leaves first."),
    ] = None,
    expires_after: Annotated[
        str | None,
        typer.Option(
            "--expires-after", metavar="DURATION", help="Do not send an occurrence later than this."
        ),
    ] = None,
    misfire: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="Occurrences to send after downtime: latest, skip or all.",
            autocompletion=lambda: ["latest", "skip", "all"],
        ),
    ] = None,
    catch_up: Annotated[
        str | None,
        typer.Option("--catch-up", metavar="DURATION", help="How far back --misfire all reaches."),
    ] = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="If the previous one still waits: allow, skip or replace.",
            autocompletion=lambda: ["allow", "skip", "replace"],
        ),
    ] = None,
    jitter: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Spread the occurrences over this time.")
    ] = None,
    start: StartOption = None,
    end: EndOption = None,
    limit: LimitOption = None,
    paused: Annotated[
        bool,
        typer.Option("--paused", help="Put no messages until it is resumed."),
    ] = False,
    version: VersionOption = None,
) -> None:
    """Make a rule, or change it; no moment fires twice.

    \b
    Examples:
      penstock recurring put daily-report --cron '0 9 * * mon-fri' --zone Europe/Berlin
      penstock recurring put poll --every 15m --route hooks --payload '{"poll":true}'
      penstock recurring put poll @poll.json --url http://127.0.0.1:8700
    """
    fields = _written(written)
    options = {
        "cron": cron,
        "every": every,
        "anchor": anchor,
        "zone": zone,
        "route": route,
        "payload": body(payload, None, content_type),
        "content_type": content_type,
        "key": key,
        "headers": headers(header),
        "labels": labels(label),
        "priority": priority,
        "expires_after": expires_after,
        "misfire": misfire,
        "catch_up": catch_up,
        "overlap": overlap,
        "jitter": jitter,
        "start": start,
        "end": end,
        "limit": limit,
        "paused": paused or None,
    }
    fields |= {name: value for name, value in options.items() if value is not None}
    said = await session.creating(
        lambda verbs: verbs.recurring.put(rule, version=version, **cast("RuleFields", fields))
    )
    if session.json:
        show.as_json(said)
        return
    coming = _next(session, said.next) or [NO_MOMENT]
    show.as_text(f"{said.id} (version {said.version}): {said.words}", *coming)


@command(app, "list", remote=True)
async def list_(session: Session) -> None:
    """List rules with their next moments.

    \b
    Examples:
      penstock recurring list --json
    """
    found: list[RecurringOut] = []
    cursor: str | None = ""
    async with session.verbs() as verbs:
        while cursor is not None:
            page, cursor = await verbs.recurring.list(cursor=cursor or None, limit=PAGE)
            found += page
    if session.json:
        show.as_json(RulePage(found, None))
        return
    show.table(
        ("rule", "state", "~route", "next", "~when", ">planted", ">missed", ">skipped"),
        [
            (
                rule.id,
                rule.state,
                rule.route,
                session.times.near_text(rule.next[0]) if rule.next else None,
                rule.words,
                f"{rule.planted:,}",
                f"{rule.missed:,}" if rule.missed else None,
                f"{rule.skipped:,}" if rule.skipped else None,
            )
            for rule in found
        ],
        none="no recurring rules; `penstock recurring put` makes one",
    )


@command(app, remote=True)
async def get(session: Session, rule: RuleArgument) -> None:
    """Show a rule, its next moments and the results of the latest.

    \b
    Examples:
      penstock recurring get daily-report
    """
    async with session.verbs() as verbs:
        _show(session, await verbs.recurring.get(rule))


@command(app, remote=True)
async def backfill(
    session: Session,
    rule: RuleArgument,
    first: Annotated[str, typer.Option("--from", metavar="TIME", help="The first moment.")],
    last: Annotated[str, typer.Option("--to", metavar="TIME", help="The last moment.")],
) -> None:
    """Send the messages of past moments that the rule has not sent, due now.

    \b
    Examples:
      penstock recurring backfill poll --from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z
    """
    async with session.verbs() as verbs:
        planted = await verbs.recurring.backfill(rule, first, last)
    if session.json:
        show.as_json(Backfilled(planted))
    else:
        show.as_text(f"{planted:,} planted")


@command(app, remote=True)
async def delete(
    session: Session,
    rule: RuleArgument,
    version: VersionOption = None,
    yes: Yes = False,
) -> None:
    """Delete a rule; messages that it has planted stay.

    The command shows the rule and asks for confirmation.

    \b
    Examples:
      penstock recurring delete daily-report --yes
    """
    asks = must_ask(yes)
    async with session.verbs() as verbs:
        if asks:
            found = await verbs.recurring.get(rule)
            confirm(f"Delete the rule {show.printable(found.id)} ({found.words})?")
        await verbs.recurring.delete(rule, version=version)
    if session.json:
        show.as_json(RuleDeleted(rule))
    else:
        show.as_text(f"{rule} deleted")


@command(app)
def preview(
    session: Session,
    cron: CronOption = None,
    every: EveryOption = None,
    anchor: AnchorOption = None,
    zone: ZoneOption = None,
    start: StartOption = None,
    end: EndOption = None,
    limit: LimitOption = None,
) -> None:
    """Show when a rule would fire, and that in words; nothing is stored.

    \b
    Examples:
      penstock recurring preview --cron '30 2 * * *' --zone Europe/Berlin
    """
    from penstock.model.recurrence_view import preview_of
    from penstock.sdk.recurring import rule_value

    fields = {
        "cron": cron,
        "every": every,
        "anchor": anchor,
        "zone": zone,
        "start": start,
        "end": end,
        "limit": limit,
    }
    said = preview_of(rule_value(fields), time.time_ns() // 1_000_000)
    if session.json:
        show.as_json(said)
    else:
        show.as_text(said.words, *(_next(session, said.next) or [NO_MOMENT]))


@command(imports, remote=True)
async def crontab(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The crontab, or - for stdin.")],
    route: Annotated[
        str,
        typer.Option(
            metavar="ROUTE", help="The route of the commands.", autocompletion=names.routes
        ),
    ] = "default",
    system: Annotated[
        bool, typer.Option("--system", help="Like /etc/crontab: a user before each command.")
    ] = False,
    zone: Annotated[
        str | None,
        typer.Option("--zone", metavar="ZONE", help="Where no CRON_TZ is set [default: UTC]."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Change rules of the same name that differ.")
    ] = False,
    skip: Annotated[
        bool, typer.Option("--skip", help="Go on without the lines that cannot be rules.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the result; change nothing.")
    ] = False,
) -> None:
    """Make a rule of each line of a crontab; its payload is the command.

    All lines, or nothing: a line that cannot be a rule, or a rule of that name which differs, is
    named with the reason (exit 2). --skip and --replace go on.

    \b
    Examples:
      crontab -l | penstock recurring import crontab - --zone Europe/Berlin --dry-run
      penstock recurring import crontab /etc/crontab --system --route commands
    """
    from penstock.model.crontab import read_crontab

    rules, problems = read_crontab(_text_of(file), route=route, system=system, zone=zone or "UTC")
    if problems and not skip:
        _refuse([(one.line, one.reason) for one in problems], "--skip goes on without")

    async def bring(verbs: Verbs) -> list[tuple[CrontabRule, str]]:
        became = [(one, await _would_be(verbs, one)) for one in rules]
        differing = [one for one, what in became if what == CHANGED]
        if differing and not (replace or dry_run):
            reasons = [(one.line, f"rule {one.id!r} differs") for one in differing]
            _refuse(reasons, "--replace changes what is there")
        for one in () if dry_run else rules:
            await verbs.recurring.put(one.id, **cast("RuleFields", one.fields))
        return became

    became = await session.creating(bring, dry_run=dry_run)
    if session.json:
        items = [{**msgspec.to_builtins(one), "what": what} for one, what in became]
        show.as_json({"items": items, "skipped": problems, "dry_run": dry_run})
        return
    show.table(
        (">line", "rule", "what", "cron", "zone", "~command"),
        [
            (
                str(one.line),
                one.id,
                what,
                one.fields["cron"],
                one.fields["zone"],
                one.fields["payload"]["command"],
            )
            for one, what in became
        ],
        none="the crontab has no commands",
    )
    show.as_text(*(f"line {one.line} skipped: {one.reason}" for one in problems))
    if dry_run:
        differs = any(what == CHANGED for _, what in became)
        needed = "; to change rules, add --replace" if differs and not replace else ""
        show.as_text(f"dry run: nothing was written{needed}")


def _refuse(reasons: list[tuple[int, str]], way_out: str) -> NoReturn:
    """Raise with every line that prevents the import."""
    lines = "; ".join(f"line {line}: {reason}" for line, reason in reasons)
    raise InvalidMessage("crontab", f"nothing was imported: {lines} ({way_out})")


async def _would_be(verbs: Verbs, one: CrontabRule) -> str:
    """The effect of an import on the rule of this name: made, changed or same."""
    from penstock.sdk.recurring import rule_value

    try:
        found = rule_of(await verbs.recurring.get(one.id))
    except UnknownThing:
        return "made"
    return "same" if canonical(found) == canonical(rule_value(one.fields)) else CHANGED


def _show(session: Session, rule: RecurringOut) -> None:
    if session.json:
        show.as_json(rule)
        return
    show.as_text(f"{rule.id} (version {rule.version}) is {rule.state}: {rule.words}")
    show.facts([(name, value) for name, value in _facts(session, rule) if value])
    show.as_text(*_next(session, rule.next))
    if rule.last:
        show.table(
            ("moment", "what", "message", "state", ">late ms"),
            [
                (
                    session.times.near_text(one.at),
                    one.what,
                    one.id,
                    one.state,
                    None if one.late is None else str(one.late),
                )
                for one in rule.last
            ],
        )


def _facts(session: Session, rule: RecurringOut) -> Iterator[tuple[str, str | None]]:
    """The rule's options besides its moments, as far as they are set, and its results."""
    yield "route", rule.route
    yield "key", rule.key
    yield "payload", show.payload_text(rule.payload)
    yield "content type", rule.content_type
    for name, value in rule.headers.items():
        yield "header", f"{name}: {value}"
    if rule.labels != Labels():
        yield "labels", msgspec.json.encode(rule.labels).decode()
    plain = msgspec.structs.asdict(rule)
    usual = Rule()
    for name in ("priority", "misfire", "catch_up", "overlap"):
        if plain[name] != getattr(usual, name):
            yield name.replace("_", " "), str(plain[name])
    for name in ("limit", "jitter", "expires_after"):
        if plain[name] is not None:
            yield name.replace("_", " "), str(plain[name])
    for name in ("start", "end"):
        if plain[name] is not None:
            yield name, session.times.both(parse_moment(plain[name]))
    yield "planted", f"{rule.planted:,}, missed {rule.missed:,}, skipped {rule.skipped:,}"
    yield "error", rule.error


def _next(session: Session, moments: list[str]) -> list[str]:
    return [f"  next {session.times.both(parse_moment(moment))}" for moment in moments]


def _written(text: str | None) -> dict[str, Any]:
    """The fields of a rule that is written as JSON; a name that no rule has is refused."""
    if text is None:
        return {}
    try:
        fields = msgspec.json.decode(read_argument(text, "rule"))
    except (msgspec.DecodeError, RecursionError) as exc:
        raise Malformed(f"not valid JSON: {exc}") from exc
    if not isinstance(fields, dict):
        raise Malformed("the rule must be a JSON object")
    for name in fields:
        if name not in Rule.__struct_fields__:
            hint = "; --version names the version" if name == "version" else ""
            raise InvalidMessage(name, f"a rule has no such field{hint}")
    return fields


def _text_of(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text()
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is not text"
        raise InvalidMessage("file", f"cannot read {file} ({why})") from exc


def _answered(
    session: Session, verb: Verb, names: tuple[str, ...], answer: RecurringOut | str
) -> None:
    del verb, names
    if isinstance(answer, RecurringOut):
        _show(session, answer)
    elif session.json:
        show.as_json(Triggered(answer))
    else:
        show.as_text(answer)


plain.register(app, "recurring", lambda verbs: verbs.recurring, {"rule": RuleArgument}, _answered)
