"""scripts/openapi.py: what differs between two OpenAPI documents."""

from __future__ import annotations

from typing import Any

from scripts.openapi import Difference, differences, report


def document(**call: Any) -> dict[str, Any]:
    """A document with one call."""
    described = {"summary": "Things", "parameters": [], "responses": {"200": {}}, **call}
    return {
        "paths": {"/things": {"get": described}},
        "components": {"schemas": {"Thing": {"properties": {"id": {"type": "string"}}}}},
    }


def test_a_document_does_not_differ_from_itself() -> None:
    assert list(differences(document(), document())) == []
    assert report([], words=True) == "no difference"


def test_a_call_that_is_gone_is_named() -> None:
    assert list(differences(document(), {**document(), "paths": {}})) == [
        Difference("gone", "call GET /things")
    ]


def test_a_new_parameter_and_a_new_status_are_named_apart() -> None:
    after = document(
        parameters=[{"name": "limit", "in": "query"}], responses={"200": {}, "429": {}}
    )

    assert list(differences(document(), after)) == [
        Difference("new", "call GET /things: parameter limit (query)"),
        Difference("new", "call GET /things: status 429"),
    ]


def test_a_field_of_another_type_is_a_change() -> None:
    after = document()
    after["components"]["schemas"]["Thing"]["properties"]["id"]["type"] = "integer"

    assert list(differences(document(), after)) == [
        Difference("changed", 'schema Thing: field id/type: "string" → "integer"')
    ]


def test_other_words_are_counted_and_listed_only_if_asked() -> None:
    found = list(differences(document(), document(summary="All things")))

    assert [one.way for one in found] == ["words"]
    assert report(found, words=False).endswith("Other words: 1")
    assert report(found, words=True).endswith("call GET /things: 'Things' → 'All things'")
