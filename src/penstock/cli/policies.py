"""Policies: caps, quiet hours and paces; their decisions and their counters."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from penstock.cli import names, show
from penstock.cli.options import LabelOptions, Sure, labels, pair, read_argument
from penstock.cli.session import Session, can_ask, command, confirm, group
from penstock.model.errors import Forbidden, InvalidMessage, UnknownMessage, UnknownThing
from penstock.model.message import DEFAULT_ROUTE
from penstock.model.policy import Calendar, decode_policy, policy_from
from penstock.model.policy_view import counter_out, decision_out, policy_out
from penstock.model.times import format_moment

if TYPE_CHECKING:
    from penstock.cli.session import Verbs
    from penstock.model.message import Message
    from penstock.model.policy import Policy
    from penstock.sdk.fields import QuestionFields

app = typer.Typer(no_args_is_help=True)
group(app, "What may go out and when: caps, quiet hours, paces.")

PolicyArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The policy's id.", autocompletion=names.policies)
]
KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="The recipient: the key of its messages.")
]
_SHARED: dict[str, tuple[Any, object]] = {
    "route": (
        Annotated[
            list[str] | None,
            typer.Option(
                "--route",
                metavar="ROUTE",
                help="Only for messages of this route; repeatable.",
                autocompletion=names.routes,
            ),
        ],
        None,
    ),
    "label": (
        Annotated[
            list[str] | None,
            typer.Option(
                "--label",
                metavar="NAME=VALUE",
                help="Only for messages with this label: channel, campaign, class or tag;"
                " repeatable.",
            ),
        ],
        None,
    ),
    "on_exceed": (
        Annotated[
            str | None,
            typer.Option(
                metavar="WORD",
                help="The verdict for messages not allowed now: DEFER (default) or BLOCK.",
                autocompletion=lambda: ["DEFER", "BLOCK"],
            ),
        ],
        None,
    ),
    "max_defer": (
        Annotated[
            str | None,
            typer.Option(
                metavar="DURATION", help="Block messages that would wait longer than this."
            ),
        ],
        None,
    ),
    "bypass": (
        Annotated[
            list[str] | None,
            typer.Option(metavar="CLASS", help="Let this class through; repeatable."),
        ],
        None,
    ),
    "shadow": (
        Annotated[
            bool, typer.Option("--shadow", help="Decide and count, but let everything through.")
        ],
        False,
    ),
}
"""Options of every kind of policy."""
BypassCounts = Annotated[
    bool, typer.Option("--bypass-counts", help="Count messages that bypass, too.")
]


def _kind(own: Callable[..., dict[str, object]]) -> Callable[..., dict[str, object]]:
    """Register the command of one kind of policy: its own options, then the shared ones.

    The function makes the fields of its own; a field of None or False keeps its default.
    """

    async def run(session: Session, policy: str, **values: Any) -> None:
        shared = {name: values.pop(name) for name in _SHARED}
        only = [("route", one) for one in shared.pop("route") or ()]
        only += [pair(text, "label") for text in shared.pop("label") or ()]
        applies_to: dict[str, list[str]] = {}
        for name, value in only:
            applies_to.setdefault("tag" if name == "tags" else name, []).extend(value.split(","))
        rule = {**own(**values), **shared, "applies_to": applies_to or None}
        said = {name: value for name, value in rule.items() if value not in (None, False)}
        await _put(session, policy, policy_from({"kind": own.__name__, **said}))

    keyword = inspect.Parameter.KEYWORD_ONLY
    first = inspect.signature(run).parameters["session"]
    policy = inspect.Parameter("policy", keyword, annotation=PolicyArgument)
    particular = inspect.signature(own, eval_str=True).parameters.values()
    common = (
        inspect.Parameter(name, keyword, default=default, annotation=annotation)
        for name, (annotation, default) in _SHARED.items()
    )
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [first, policy, *(p.replace(kind=keyword) for p in particular), *common]
    )
    run.__name__, run.__doc__ = own.__name__, own.__doc__
    command(app, remote=True)(run)
    return own


@command(app, "list", remote=True)
async def list_(session: Session) -> None:
    """List policies.

    \b
    Examples:
      penstock policy list --json
    """
    async with session.verbs() as verbs:
        policies = await verbs.policies()
    written = [policy_out(policy_id, policy) for policy_id, policy in policies.items()]
    if session.json:
        show.as_json({"items": written, "next": None})
        return
    show.table(
        ("policy", "kind", "~rule"),
        [_row(item) for item in written],
        none="no policies: everything may go out; add one with `penstock policy cap|quiet|pace`",
    )


@command(app, "show", remote=True)
async def show_(session: Session, policy: PolicyArgument) -> None:
    """Show one policy, without fields that have their default.

    \b
    Examples:
      penstock policy show three-a-day
    """
    async with session.verbs() as verbs:
        found = (await verbs.policies()).get(policy)
    if found is None:
        raise UnknownThing(f"no policy named {policy[:100]!r}")
    show.as_json(policy_out(policy, found))


@command(app, remote=True)
async def put(
    session: Session,
    policy: PolicyArgument,
    written: Annotated[
        str,
        typer.Argument(
            metavar="JSON|@FILE|-", help="The policy; @FILE reads a file, - standard input."
        ),
    ],
) -> None:
    """Create or replace a policy from JSON; it applies to every decision from now on.

    \b
    Examples:
      penstock policy put daily '{"kind":"cap","scope":["key"],"limit":3,"window":"24h"}'
      penstock policy put daily @daily.json
    """
    await _put(session, policy, decode_policy(read_argument(written, "policy")))


@_kind
def cap(
    per: Annotated[
        list[str] | None,
        typer.Option(
            "--per",
            metavar="WORD",
            help="Count separately per key (default), channel, campaign, tag or route; repeatable.",
            autocompletion=lambda: ["key", "channel", "campaign", "tag", "route"],
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="Messages at most in a window.")
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="WINDOW",
            help="A rolling span (24h, 7d), or of the calendar: hour, day, week, month, year.",
        ),
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="The zone of a calendar window: Europe/Berlin."),
    ] = None,
    min_interval: Annotated[
        str | None, typer.Option(metavar="DURATION", help="The shortest time between two messages.")
    ] = None,
    bypass_counts: BypassCounts = False,
) -> dict[str, object]:
    """Create or replace a cap: at most so many messages in a window.

    \b
    Examples:
      penstock policy cap three-a-day --limit 3 --per key --window 24h
      penstock policy cap weekly --limit 10 --window week --zone Europe/Berlin
    """
    span: object = window
    if window in list(Calendar):
        span = {"calendar": window} | ({"zone": zone} if zone else {})
    elif zone is not None:
        raise InvalidMessage("zone", "needs a calendar window, such as --window week")
    return {
        "scope": [word for words in per or ["key"] for word in words.split(",")],
        "limit": limit,
        "window": span,
        "min_interval": min_interval,
        "bypass_counts": bypass_counts,
    }


@_kind
def quiet(
    from_: Annotated[
        str, typer.Option("--from", metavar="HH:MM", help="The time it begins, by the wall clock.")
    ],
    to: Annotated[str, typer.Option(metavar="HH:MM", help="The time it ends.")],
    days: Annotated[
        str | None,
        typer.Option(metavar="DAYS", help="Nights that begin on: mon,tue … [default: all]."),
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE", help="The zone of messages without a label tz: Europe/Berlin."
        ),
    ] = None,
    spread: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Send deferred messages spread over this time [default: 1m]."
        ),
    ] = None,
) -> dict[str, object]:
    """Create or replace quiet hours: nothing between two times of the recipient's day.

    \b
    Examples:
      penstock policy quiet nights --from 22:00 --to 08:00 --zone Asia/Seoul
      penstock policy quiet nights --from 22:00 --to 08:00 --bypass transactional
    """
    listed = None if days is None else days.split(",")
    return {"from": from_, "to": to, "days": listed, "zone": zone, "spread": spread}


@_kind
def pace(
    rate: Annotated[str, typer.Option(metavar="RATE", help="The average rate: 50/s, 100/m.")],
    burst: Annotated[
        int | None,
        typer.Option(metavar="N", help="Messages at once [default: what the rate gives in 10 ms]."),
    ] = None,
    bypass_counts: BypassCounts = False,
) -> dict[str, object]:
    """Create or replace a pace: at most so many messages a second.

    \b
    Examples:
      penstock policy pace provider --rate 50/s --burst 10 --route push
    """
    return {"rate": rate, "burst": burst, "bypass_counts": bypass_counts}


async def _put(session: Session, policy: str, checked: Policy) -> None:
    await session.creating(lambda verbs: verbs.put_policy(policy, checked))
    if session.json:
        show.as_json(policy_out(policy, checked))
    else:
        show.as_text(f"{policy} is in force")


@command(app, remote=True)
async def delete(session: Session, policy: PolicyArgument, yes: Sure = False) -> None:
    """Delete a policy and its counters.

    On a terminal the command asks for confirmation.

    \b
    Examples:
      penstock policy delete three-a-day
    """
    async with session.verbs() as verbs:
        if not yes and can_ask():
            found = (await verbs.policies()).get(policy)
            if found is not None:
                kind = policy_out(policy, found)["kind"]
                confirm(f"Delete the {kind} {policy} and its counters?")
        await verbs.drop_policy(policy)
    if session.json:
        show.as_json({"id": policy})
    else:
        show.as_text(f"{policy} is forgotten")


@command(app, remote=True)
async def explain(
    session: Session,
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="The recipient: the key of its messages.")
    ] = None,
    id: Annotated[  # noqa: A002 - the option's name
        str | None,
        typer.Option(
            "--id", metavar="ID", help="Take key, route, labels and expires of this message."
        ),
    ] = None,
    route: Annotated[
        str | None,
        typer.Option(
            metavar="ROUTE",
            help=f"The route it would go to [default: {DEFAULT_ROUTE}, or the message's].",
            autocompletion=names.routes,
        ),
    ] = None,
    label: LabelOptions = None,
) -> None:
    """Show what would be decided about a message now, and why; nothing is sent or counted.

    About a message to a recipient (KEY), or about one that is scheduled (--id), as it is or with
    another --route or --label. Every rule is listed, not only the one that gives the reason.

    \b
    Examples:
      penstock policy explain user1 --label class=promotional --label tz=Asia/Seoul
      penstock policy explain --id order-17
    """
    if (key is None) == (id is None):
        raise InvalidMessage("key", "give a key, or a message by --id")
    async with session.verbs() as verbs:
        message = None if id is None else await verbs.get(id)
        asked = _question(key, message, route, labels(label))
        decision = await verbs.explain(**asked)
        counters = await verbs.counters(asked["key"])
        same = None if key is None or session.json else await _message(verbs, key)
    if same is not None and same.key != key:
        print(
            f"{show.printable(same.id)} is also a message, of the key {show.printable(same.key)};"
            f" about that message: penstock policy explain --id {show.printable(same.id)}",
            file=sys.stderr,
        )
    if session.json:
        show.as_json(decision_out(decision, counters))
        return
    until = "" if decision.until is None else f" until {session.times.both(decision.until)}"
    why = "" if decision.reason is None else f": {decision.reason.policy}, {decision.reason.detail}"
    show.as_text(f"{decision.verdict}{until}{why}")
    show.table(
        ("policy", "verdict", "until", "/detail"),
        [
            (
                rule.policy,
                f"{rule.verdict}{' (shadow)' if rule.shadow else ''}",
                None if rule.until is None else session.times.near(rule.until),
                rule.detail,
            )
            for rule in decision.rules
        ],
        none="no policy applies",
    )


def _question(
    key: str | None, message: Message | None, route: str | None, said: dict[str, object] | None
) -> QuestionFields:
    """The message to explain: options take precedence over the fields of a stored one."""
    if message is None:
        return {"key": key or "", "route": route or DEFAULT_ROUTE, "labels": said or {}}
    return {
        "id": message.id,
        "key": message.key,
        "route": route or message.route,
        "labels": said or message.labels or {},
        "expires": None if message.expires is None else format_moment(message.expires),
    }


async def _message(verbs: Verbs, message_id: str) -> Message | None:
    """The message if this caller may see one with that id."""
    try:
        return await verbs.get(message_id)
    except (InvalidMessage, UnknownMessage, Forbidden):
        return None


@command(app, remote=True)
async def counters(session: Session, key: KeyArgument) -> None:
    """Show what caps have counted for a key.

    \b
    Examples:
      penstock policy counters user1
    """
    async with session.verbs() as verbs:
        figures = [counter_out(figure) for figure in await verbs.counters(key)]
    if session.json:
        show.as_json({"key": key, "items": figures, "next": None})
        return
    show.table(
        ("policy", "counted by", ">used", ">limit", "resets"),
        [
            (
                figure.policy,
                ", ".join(f"{word} {value}" for word, value in figure.scope.items()),
                str(figure.used),
                None if figure.limit is None else str(figure.limit),
                session.times.near_text(figure.resets),
            )
            for figure in figures
        ],
        none="no cap has counted anything for this key",
    )


def _row(written: dict[str, object]) -> tuple[str, str, str]:
    says = {name: value for name, value in written.items() if name not in ("id", "kind")}
    return str(written["id"]), str(written["kind"]), msgspec.json.encode(says).decode()
