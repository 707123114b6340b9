"""The table of verbs: everything it names is there, and a router finds what it should."""

from __future__ import annotations

from typing import Any, cast

import pytest
from typer.testing import CliRunner

from penstock.api.http import openapi, request
from penstock.api.http.errors import MethodNotAllowed
from penstock.api.http.router import PACKAGE, Router
from penstock.api.verbs import PAGES, SCHEMAS, VERBS, Verb, load
from penstock.cli.app import build
from penstock.contrib import SYSTEMS, mounts
from penstock.flow.control import Control
from penstock.model.errors import UnknownThing
from penstock.settings import given

MOUNTS = mounts(given(contrib=[*SYSTEMS]))
MOUNTED = tuple(verb for mount in MOUNTS for verb in mount.verbs)
MADE = {"Outcomes", "Policy", "HeldPolicy", "HeldSuppression"}
"""Schemas that the document makes of others."""


@pytest.mark.parametrize("verb", [*VERBS, *PAGES, *MOUNTED], ids=lambda verb: verb.name)
def test_a_verb_names_only_what_there_is(verb: Verb) -> None:
    assert callable(load(verb.handler, PACKAGE))
    known = {*SCHEMAS, *MADE, *(name for mount in MOUNTS for name in mount.schemas)}
    assert {schema for _, schema in verb.answers.values() if schema} <= known
    assert verb.body in known | {None, "batch"}
    assert verb.query <= set(openapi.QUERY)


def test_every_name_in_a_path_of_the_core_can_be_read_and_is_described() -> None:
    names = {name for verb in VERBS for name in verb.in_path}
    assert names <= set(request._READ)
    assert names <= set(openapi.PATH)


def test_what_the_flow_does_for_a_shared_handler_is_there() -> None:
    for verb in VERBS:
        if verb.flow and verb.handler != "figures:read":
            assert callable(getattr(Control, verb.flow)), verb.name


@pytest.mark.parametrize(
    "verb",
    [verb for verb in VERBS if verb.command],
    ids=lambda verb: verb.command.replace(" ", "-"),
)
def test_a_command_that_is_one_call_says_what_the_table_says(verb: Verb) -> None:
    shown = CliRunner().invoke(build(), [*verb.command.split(), "--help"], env={"COLUMNS": "120"})
    assert f"  {verb.words}.\n" in shown.stdout
    metavars = " ".join(
        {"name": "ROUTE", "rule": "ID"}.get(name, name.upper()) for name in verb.in_path
    )
    assert f"{verb.command} [OPTIONS] {metavars}\n" in shown.stdout
    assert ("--version" in shown.stdout) is ("If-Match" in verb.parameters)


def find(method: str, path: str) -> tuple[str, tuple[str, ...]] | None:
    router = Router(cast("Any", None), (*VERBS, *PAGES))
    found = router._find(method, path)
    return None if found is None else (found[0].verb.name, found[1])


@pytest.mark.parametrize(
    ("method", "path", "name", "names"),
    [
        ("POST", "/v1/messages/batch", "scheduleBatch", ()),
        ("GET", "/v1/messages/batch", "get", ("batch",)),
        ("DELETE", "/v1/messages/cancel", "cancel", ("cancel",)),
        ("POST", "/v1/messages/batch/release", "release", ("batch",)),
        ("GET", "/v1/messages/a%2Fb", "get", ("a%2Fb",)),
        ("HEAD", "/v1/messages/..", "get", ("..",)),
        ("PUT", "/v1/suppressions/s/keys/k", "suppress", ("s", "k")),
        ("GET", "/", "dashboard", ()),
        ("GET", "/ui/views/now.js", "dashboardView", ("now.js",)),
        ("GET", "/ui/main.js", "dashboardFile", ("main.js",)),
    ],
)
def test_a_path_is_matched_as_it_was_sent(
    method: str, path: str, name: str, names: tuple[str, ...]
) -> None:
    assert find(method, path) == (name, names)


@pytest.mark.parametrize(
    "path",
    ["/v1/messages/", "/v1//messages", "//", "", "/v1/messages/a/", "/V1/messages", "/v1", "*"],
)
def test_what_is_no_path_of_ours_is_unknown_whatever_the_method(path: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        with pytest.raises(UnknownThing):
            find(method, path)


def test_a_stream_has_no_head_and_every_known_path_has_options() -> None:
    assert find("OPTIONS", "/v1/messages/x") is None
    with pytest.raises(MethodNotAllowed) as refused:
        find("HEAD", "/v1/events")
    assert refused.value.allow == "GET, OPTIONS"
