"""The reference pages say what the code does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import penstock
from penstock import settings
from penstock.contrib.sms import sender
from penstock.flow import ingest
from penstock.model import envelope
from penstock.model.room_view import RoomOut, TicketOut
from penstock.sdk.async_rooms import AsyncRooms
from scripts import reference

ROOT = Path(__file__).parents[2]


def test_the_settings_page_is_current() -> None:
    written = (ROOT / "docs/reference/config.md").read_text()
    assert written == reference.config_page(), "run: python scripts/reference.py"


def test_the_command_line_page_is_current() -> None:
    written = (ROOT / "docs/reference/cli.md").read_text()
    assert written == reference.cli_page(), "run: python scripts/reference.py"


def test_the_calls_of_the_http_page_are_those_of_the_table() -> None:
    written = (ROOT / "docs/reference/http.md").read_text()
    assert written == reference.http_page(), "run: python scripts/reference.py"


def test_the_tables_from_the_code_are_current() -> None:
    for page, text in reference.pages_with_tables().items():
        assert page.read_text() == text, f"{page.name}: run python scripts/reference.py"


def test_the_rooms_page_has_every_field_of_a_room_and_of_a_ticket() -> None:
    page = (ROOT / "docs/reference/rooms.md").read_text()
    for field in (*RoomOut.__struct_fields__, *TicketOut.__struct_fields__):
        assert f"`{field}`" in page, field


def test_every_setting_has_its_meaning_beside_it() -> None:
    page = reference.config_page()
    parts = (
        settings.ApiSettings,
        settings.TokenSettings,
        settings.WorkerSettings,
        settings.RouteSettings,
        settings.LimitSettings,
        settings.LogSettings,
        settings.RoomsSettings,
        settings.RoomKeySettings,
    )
    for part in parts:
        for name in part.model_fields:
            assert f"| `{name}` |" in page, f"{part.__name__}.{name} has no text below it"


def test_every_header_of_ours_is_explained() -> None:
    page = (ROOT / "docs/reference/http.md").read_text()
    carried = (envelope.ID, envelope.ATTEMPT, envelope.DUE, envelope.KEY, envelope.CONTENT_TYPE)
    letters = (ingest.REASON, ingest.SOURCE, ingest.RECORD, ingest.PLACE)
    for name in (*carried, *letters):
        assert f"| `{name}` |" in page, name
    for name in (sender.ATTEMPT, sender.SPENT, sender.ERROR):
        assert f"`{name}`" in page, name


def test_every_setting_of_a_broker_is_explained() -> None:
    page = reference.config_page()
    options = {kind for kinds in reference.OWN.values() for kind in kinds if kind is not None}
    for kind in options:
        for name in kind.__struct_fields__:
            assert f"| `{name}` |" in page, f"{kind.__name__}.{name}"


def test_the_version_is_the_one_that_is_packaged() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert penstock.__version__ == project["version"]


def test_every_public_name_can_be_had() -> None:
    assert penstock.__all__ == sorted(penstock.__all__)
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
        assert name in dir(penstock)


def test_the_python_page_has_every_public_name_and_verb() -> None:
    page = (ROOT / "docs/reference/python.md").read_text()
    verbs = {name for kind in (penstock.Engine, penstock.AsyncClient) for name in vars(kind)}
    public = {name for name in verbs if not name.startswith("_")} - {"close"}
    public |= {name for name in vars(AsyncRooms) if not name.startswith("_")}
    for name in sorted(public | (set(penstock.__all__) - {"__version__"})):
        assert re.search(rf"\b{name}\b", page), f"{name} is not in docs/reference/python.md"
