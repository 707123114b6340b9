"""What the page is made of: light, complete, and without anything that parses data as markup."""

from __future__ import annotations

import re
import sys

from penstock.dashboard.files import UPLOT, _all, dashboard_file

LIGHT = 150 * 1024
OWN = {name: found for name, found in _all().items() if name not in UPLOT}
MODULES = {name: found.content.decode() for name, found in OWN.items() if name.endswith(".js")}


def test_the_page_is_light_without_the_chart_library() -> None:
    assert 0 < sum(len(found.content) for found in OWN.values()) <= LIGHT


def test_the_chart_library_is_served_and_its_package_is_never_imported() -> None:
    charts = dashboard_file("uPlot.iife.js")
    assert charts is not None
    assert b"uPlot" in charts.content
    assert "uplot" not in sys.modules


def test_every_import_leads_to_a_module() -> None:
    for name, text in MODULES.items():
        folder = "views/" if name.startswith("views/") else ""
        for wanted in re.findall(r'from "(\.[^"]+)"', text):
            path = wanted.removeprefix("./")
            target = path.removeprefix("../") if path.startswith("../") else folder + path
            assert target in MODULES, (name, wanted)


def test_nothing_is_inserted_as_markup_or_evaluated() -> None:
    for name, text in MODULES.items():
        found = re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
        assert found is None, name


def test_a_file_that_is_not_the_pages_is_not_served() -> None:
    assert dashboard_file("files.py") is None
    assert dashboard_file("../files.py") is None
