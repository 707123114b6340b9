"""What the page is made of: light, complete, and without anything that parses data as markup."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files

from penstock.dashboard.files import UPLOT, _all, dashboard_file

UPLOT_VERSION = "1.6.16"
PUBLISHED = {  # dist/ of the npm package uplot
    "uPlot.iife.js": "655bc8aa33781e8721c5af6b59f1699c03c9bda951aa74a6ab518ac20cc4326d",
    "uPlot.min.css": "3f121cd4a997b634e07a887658850018e475c26f0bddd874109a8d382c19de87",
}
LIGHT = 150 * 1024
OWN = {name: found for name, found in _all().items() if name not in UPLOT}
MODULES = {name: found.content.decode() for name, found in OWN.items() if name.endswith(".js")}


def test_the_page_is_light_without_the_chart_library() -> None:
    assert 0 < sum(len(found.content) for found in OWN.values()) <= LIGHT


def test_the_chart_library_is_the_published_version_byte_by_byte() -> None:
    for name, digest in PUBLISHED.items():
        served = dashboard_file(name)
        assert served is not None
        assert hashlib.sha256(served.content).hexdigest() == digest, name
    assert f"(v{UPLOT_VERSION})".encode() in _all()["uPlot.iife.js"].content[:400]


def test_the_chart_librarys_licence_is_shipped_beside_it_and_not_served() -> None:
    licence = files("penstock.dashboard").joinpath("uplot", "LICENSE").read_text()
    assert "Leon Sorokin" in licence
    assert dashboard_file("LICENSE") is None


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
