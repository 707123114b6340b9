"""Commands that are one call of the table of verbs and nothing more, such as `penstock room close`.

The row says which (`Verb.command`). Its words are the command's help, the names in its path are the
arguments, and If-Match is `--version`. The module of the noun says only how an answer is shown.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from penstock.api.verbs import VERBS, Verb
from penstock.cli.session import Session, command

if TYPE_CHECKING:
    from penstock.cli.session import Verbs

VersionOption = Annotated[
    int | None, typer.Option("--version", metavar="N", help="Only if the rule has this version.")
]
EXAMPLES = {"name": "push", "rule": "daily-report", "room": "sale", "user": "u1"}
"""A name in a path → one for the example in the help."""
Shown: TypeAlias = Callable[[Session, Verb, tuple[str, ...], Any], None]
"""Prints the answer to a verb that was called with these names."""


def register(
    app: typer.Typer,
    noun: str,
    part: Callable[[Verbs], object],
    arguments: Mapping[str, Any],
    shown: Shown,
) -> None:
    """Add the commands of a noun. `part` of an engine or client has a method for each, by its word;
    `arguments` says how typer reads each name in a path.
    """
    for verb in VERBS:
        group, _, word = verb.command.partition(" ")
        if group == noun:
            _add(app, verb, word, part, arguments, shown)


def _add(
    app: typer.Typer,
    verb: Verb,
    word: str,
    part: Callable[[Verbs], object],
    arguments: Mapping[str, Any],
    shown: Shown,
) -> None:
    async def run(session: Session, **values: Any) -> None:
        names = tuple(values.pop(name) for name in verb.in_path)
        async with session.verbs() as verbs:
            answer = await getattr(part(verbs), word)(*names, **values)
        shown(session, verb, names, answer)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.signature(run).parameters["session"]]
    parameters += [
        inspect.Parameter(name, keyword, annotation=arguments[name]) for name in verb.in_path
    ]
    if "If-Match" in verb.parameters:
        parameters.append(
            inspect.Parameter("version", keyword, default=None, annotation=VersionOption)
        )
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    example = " ".join(("penstock", verb.command, *(EXAMPLES[name] for name in verb.in_path)))
    run.__name__, run.__doc__ = word, f"{verb.words}.\n\n\b\nExamples:\n  {example}"
    command(app, word, remote=True)(run)
