"""Policies: caps, quiet hours and paces; what they would decide, and what they have counted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from penstock.cli import show
from penstock.cli.session import Session, command, group
from penstock.model.errors import InvalidMessage, UnknownThing
from penstock.model.policy import decode_policy
from penstock.model.policy_view import counter_out, decision_out, policy_out
from penstock.model.times import format_moment

app = typer.Typer(no_args_is_help=True)
group(app, "What may go out and when: caps, quiet hours, paces.")

PolicyArgument = Annotated[str, typer.Argument(metavar="ID", help="The policy's id.")]
KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="Whom it is about.")]


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
        ("policy", "kind", "says"),
        [_row(item) for item in written],
        none="no policies: everything may go out; `penstock policy put` keeps one",
    )


@command(app, "show", remote=True)
async def show_(session: Session, policy: PolicyArgument) -> None:
    """Show one policy as it was written.

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
        typer.Argument(metavar="JSON", help="The policy, @FILE to read it, or - for stdin."),
    ],
) -> None:
    """Keep a policy for what is decided from now on, in every process.

    \b
    Examples:
      penstock policy put daily '{"kind":"cap","scope":["key"],"limit":3,"window":"24h"}'
    """
    checked = decode_policy(read_argument(written, "policy"))
    async with session.verbs(creates=True) as verbs:
        await verbs.put_policy(policy, checked)
    if session.json:
        show.as_json(policy_out(policy, checked))
    else:
        show.as_text(f"{policy} is in force")


@command(app, remote=True)
async def delete(session: Session, policy: PolicyArgument) -> None:
    """Forget a policy and its counters.

    \b
    Examples:
      penstock policy delete three-a-day
    """
    async with session.verbs() as verbs:
        await verbs.drop_policy(policy)
    if session.json:
        show.as_json({"id": policy})
    else:
        show.as_text(f"{policy} is forgotten")


@command(app, remote=True)
async def explain(
    session: Session,
    key: KeyArgument,
    route: Annotated[str, typer.Option(help="The route it would go to.")] = "default",
    labels: Annotated[
        str, typer.Option(metavar="JSON", help="Labels, as in POST /v1/messages.")
    ] = "{}",
) -> None:
    """Say what would be decided of a message now, and why; writes nothing.

    \b
    Examples:
      penstock policy explain user1 --labels '{"class":"promotional","tz":"Asia/Seoul"}'
    """
    async with session.verbs() as verbs:
        decision = await verbs.explain(key=key, route=route, labels=_labels(labels))
        counters = await verbs.counters(key)
    if session.json:
        show.as_json(decision_out(decision, counters))
        return
    until = "" if decision.until is None else f" until {format_moment(decision.until)}"
    why = "" if decision.reason is None else f": {decision.reason.policy}, {decision.reason.detail}"
    show.as_text(f"{decision.verdict}{until}{why}")
    show.table(
        ("policy", "verdict", "until", "detail"),
        [
            (
                rule.policy,
                f"{rule.verdict}{' (shadow)' if rule.shadow else ''}",
                None if rule.until is None else format_moment(rule.until),
                rule.detail,
            )
            for rule in decision.rules
        ],
        none="no policy applies",
    )


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
                figure.resets,
            )
            for figure in figures
        ],
        none="no cap has counted anything for this key",
    )


def _row(written: dict[str, object]) -> tuple[str, str, str]:
    says = {name: value for name, value in written.items() if name not in ("id", "kind")}
    return str(written["id"]), str(written["kind"]), msgspec.json.encode(says).decode()


def read_argument(written: str, what: str) -> bytes:
    """The text itself, the file that `@FILE` names, or what comes on stdin for `-`."""
    if written == "-":
        return sys.stdin.buffer.read()
    if written.startswith("@"):
        try:
            return Path(written[1:]).read_bytes()
        except OSError as exc:
            raise InvalidMessage(what, f"cannot read {written[1:]} ({exc.strerror})") from exc
    return written.encode()


def _labels(text: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, msgspec.ValidationError) as exc:
        raise InvalidMessage("labels", f"must be a JSON object ({exc})") from exc
