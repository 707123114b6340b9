"""A route's settings reach its sink, and one that nobody knows is an error."""

from pathlib import Path

import pytest

from penstock.model.errors import ConfigError
from penstock.settings import RouteSettings, load
from penstock.wiring import open_sink


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "penstock.toml"
    file.write_text(
        """
        [routes.jobs]
        sink = "python:json:dumps"
        threads = 3
        timeout = "1500ms"
        secret = "hush"
        topics = ["orders.*"]
        [routes.jobs.headers]
        x-a = "1"
        """
    )
    return file


def test_the_options_of_a_route_are_its_settings(config: Path) -> None:
    options = load(config).routes["jobs"].as_sink_options("jobs")
    assert (options.route, options.timeout, options.secret) == ("jobs", 1.5, "hush")
    assert (options.headers, options.topics) == ({"x-a": "1"}, ("orders.*",))
    assert options.more == {"threads": 3}


async def test_a_sinks_own_settings_are_in_the_routes_table(config: Path) -> None:
    sink = await open_sink("jobs", load(config).routes["jobs"])
    await sink.close()
    assert sink.concurrency == 3


async def test_and_in_the_environment(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_ROUTES__JOBS__THREADS", "5")
    sink = await open_sink("jobs", load(config).routes["jobs"])
    await sink.close()
    assert sink.concurrency == 5


async def test_a_setting_nobody_knows_is_an_error() -> None:
    typo = RouteSettings.model_validate({"sink": "log://", "max_atempts": 3})
    with pytest.raises(ConfigError, match=r"routes\.jobs\.max_atempts: no such setting"):
        await open_sink("jobs", typo)


async def test_a_scheme_nobody_knows_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"routes\.jobs\.sink: no driver for 'gopher'"):
        await open_sink("jobs", RouteSettings(sink="gopher://x"))
