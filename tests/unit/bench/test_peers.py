"""The comparison with peers: what needs neither a peer nor a server."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench.peers import plots, records, report
from bench.peers.environments import ADAPTERS, VERSIONS
from bench.peers.table import PEERS, chosen
from scripts import figures

LINES = "1 1000 1001500\n2 1000 1250000\n2 1000 1260000\n9000001 1000 999000\n3 10"


@pytest.fixture
def came(tmp_path: Path) -> Path:
    path = tmp_path / "came"
    path.write_text(LINES)
    return path


def result(name: str = "celery", **figures: object) -> dict[str, object]:
    (peer,) = chosen([name])
    return report.result(peer, {"celery": "5"}, figures)


def late(*ms: float) -> dict[str, object]:
    return records.lateness([records.Came(n, 0, round(one * 1000)) for n, one in enumerate(ms)])


def test_only_whole_lines_of_the_asked_ids_are_read(came: Path) -> None:
    found = records.read(came, 0, 1_000)
    assert [(one.id, one.late) for one in found] == [(1, 1.5), (2, 250.0), (2, 260.0)]
    assert records.count(came) == 4


def test_nothing_was_handled_where_no_file_is(tmp_path: Path) -> None:
    assert records.read(tmp_path / "none") == []
    assert records.count(tmp_path / "none") == 0
    assert not records.wait_for(tmp_path / "none", 1, 0.0)


def test_a_repeat_is_counted_and_a_missing_id_is_lost(came: Path) -> None:
    assert records.repeats(records.read(came, 0, 1_000), number=4) == (2, 1)


def test_lateness_tells_early_calls_apart(came: Path) -> None:
    figures = records.lateness(records.read(came))
    assert figures["early"] == 1
    assert figures["earliest"] == -1.0
    assert (figures["p50"], figures["max"]) == (1.5, 260.0)


def test_a_burst_is_drained_when_its_last_message_came(came: Path) -> None:
    assert records.drained(records.read(came, 0, 1_000)) == pytest.approx(3 / 0.26)


def test_what_is_missing_is_a_dash_with_its_reason() -> None:
    one = result("huey", single=4_000, failed={"release": "Traceback\nno such server"})
    assert report.cells(one)[1:5] == ["–", "4,000", "–", "–"]
    assert report.reasons([one]) == [
        "Huey: bulk: has no call for many",
        "Huey: release failed: no such server",
    ]


def test_a_line_shows_every_figure() -> None:
    one = result(
        bulk=1_250,
        single=1_150,
        at_once=1_200,
        bytes=1_375,
        worker_bytes=9_400,
        burst={"drained": 3_070, "missing": 0, **late(1, 2, 3)},
        steady={"missing": 2, **late(-1, 6.04)},
        kill={"lost": 3, "twice": 1},
    )
    assert report.cells(one) == [
        *("Celery", "1,250", "1,150", "1,200", "3,070", "2 · 2", "-1 · -1"),
        *("1,375 + 9,400", "1", "3 · 1"),
    ]
    assert report.reasons([one]) == ["Celery: steady: 2 did not come"]
    assert "steps" not in json.loads(report.lines([one])[0])["burst"]


def test_enqueues_measured_again_count_as_much_as_the_first() -> None:
    first = result(bulk=20, single=5, bytes=300, samples={"bulk": [10, 20, 30], "single": [5]})
    again = {"bulk": 90, "bytes": 999, "samples": {"bulk": [80, 90, 100]}}
    both = report.with_more(first, again)
    assert (both["bulk"], both["single"], both["bytes"]) == (55, 5, 300)
    assert both["samples"]["bulk"] == [10, 20, 30, 80, 90, 100]


def test_a_part_measured_again_replaces_that_part_and_its_failure() -> None:
    before = result(single=5, kill={"lost": 9}, failed={"kill": "no", "steady": "no"})
    again = result(kill={"lost": 0})
    both = report.with_part(before, again, "kill")
    assert (both["single"], both["kill"], both["failed"]) == (5, {"lost": 0}, {"steady": "no"})
    assert "failed" not in report.with_part({"failed": {"kill": "no"}}, again, "kill")
    worse = report.with_part(both, result(failed={"kill": "why"}), "kill")
    assert worse["failed"] == {"steady": "no", "kill": "why"}


def test_plots_are_drawn_of_what_there_is(tmp_path: Path) -> None:
    ours = result("penstock-redis", bulk=80_000, single=9_000, burst={"drained": 90_000} | late(5))
    peers = [ours, result(bulk=1_250, bytes=1_375, steady=late(-1, 4, 900))]
    peers[0] |= {"bytes": 258, "growth": [(1_000, 300_000), (50_000, 13_000_000)]}
    report.keep(tmp_path / "peers.json", "", {}, peers)
    rows = [{"what": f"a message with {n:,} pending", "figure": 9.5} for n in (10, 1_000)]
    (tmp_path / "redis.json").write_text(json.dumps({"rows": rows}))
    drawn = plots.drawings(tmp_path)
    assert set(drawn) == {
        *("peers-bulk.svg", "peers-single.svg", "peers-burst.svg", "peers-memory.svg"),
        *("peers-late-burst.svg", "peers-late-steady.svg", "cost-pending.svg"),
        "peers-growth.svg",
    }
    for text in drawn.values():
        assert ET.fromstring(text).tag.endswith("svg")
    assert ">Celery</text>" in drawn["peers-bulk.svg"]


def test_a_peer_is_chosen_by_its_name_or_its_family() -> None:
    assert [peer.name for peer in chosen(["rq"])] == ["rq"]
    assert {peer.place for peer in chosen(["penstock"])} == {"penstock"}
    assert chosen([]) == list(PEERS)
    with pytest.raises(ValueError, match="no peer 'sidekiq'; there are: penstock-sqlite"):
        chosen(["celery", "sidekiq"])


@pytest.mark.parametrize("path", sorted(ADAPTERS.glob("*_peer.*")), ids=lambda path: path.name)
def test_an_adapter_has_at_most_60_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 60


def test_every_peer_has_an_adapter_and_versions() -> None:
    for place in {peer.place for peer in PEERS}:
        assert list(ADAPTERS.glob(f"{place}_peer.*")), place
        assert place in VERSIONS or place in {"penstock", "beanstalkd"}


def test_the_pages_show_what_was_measured() -> None:
    for page, text in figures.pages().items():
        assert page.read_text() == text, f"{page.name}: run scripts/figures.py"


def test_what_is_behind_is_said_figure_by_figure() -> None:
    ours = result(
        "penstock-redis",
        bulk=500,
        single=50,
        steady=late(3),
        bytes=300,
        kill={"lost": 0, "twice": 2},
    )
    peer = result(
        "huey", single=60, steady=late(9), bytes=200, worker_bytes=200, kill={"lost": 0, "twice": 0}
    )
    faster = result("celery", bulk=400, single=70)
    assert report.behind([ours, peer, faster]) == [
        "single/s: Penstock, Redis, library (50) is behind Celery; Huey",
        "twice after kill -9: Penstock, Redis, library (2) is behind Huey",
    ]
    text = report.markdown({"peers": [ours, peer, faster]})
    assert "**Where Penstock is behind in this run:**\n\n- single/s: " in text
    assert "behind in this run" not in report.markdown({"peers": [ours]})
