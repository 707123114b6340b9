"""Every ready-made config is whole: read by the settings, known to the drivers, explained."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from penstock.model.errors import ConfigError
from penstock.settings import load
from penstock.wiring import driver_problems

ROOT = Path(__file__).parents[3]
PLACEHOLDER = "change-me"
EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.is_dir())
CONFIGS = sorted(
    path for path in (ROOT / "examples").rglob("*.toml") if path.name != "processes.toml"
)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT / "examples"))


def test_the_systems_are_all_there() -> None:
    assert {path.name for path in EXAMPLES} >= {
        *("ticks", "sender-rabbitmq", "sender-nats", "sms", "scheduler-service")
    }


def _set_secrets(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its env file leaves to be made, as a user makes it."""
    for line in (config.parent / ".env.example").read_text().splitlines():
        if PLACEHOLDER in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            monkeypatch.setenv(name, value.replace(PLACEHOLDER, secrets.token_urlsafe(32)))


def test_an_example_with_a_secret_starts_only_with_one_of_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with_secrets = [config for config in CONFIGS if PLACEHOLDER in config.read_text()]
    assert {_name(config.parent) for config in with_secrets} == {"dispatcher", "ticket-sale"}
    for config in with_secrets:
        with pytest.raises(ConfigError, match=r"secret: is a placeholder.*secrets\.token_urlsafe"):
            load(config)
        _set_secrets(config, monkeypatch)
        load(config)


@pytest.mark.parametrize("config", CONFIGS, ids=_name)
async def test_a_config_has_nothing_wrong_with_it(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _set_secrets(config, monkeypatch)
    settings = load(config)
    assert await driver_problems(settings) == []
    for source in settings.sources.values():
        assert source.route in settings.routes
        assert source.dead_letter, "nothing that cannot be read may just be gone"


@pytest.mark.parametrize("example", EXAMPLES, ids=_name)
def test_an_example_says_what_to_do_and_where_to_read_on(example: Path) -> None:
    readme = (example / "README.md").read_text()
    assert "docs/systems/" in readme or "docs/guides/" in readme
    assert (example / ".env.example").exists()


@pytest.mark.parametrize("config", CONFIGS, ids=_name)
async def test_what_its_env_file_names_are_settings_and_all_that_must_move(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commented lines too: somebody will take the mark away."""
    monkeypatch.chdir(tmp_path)
    _set_secrets(config, monkeypatch)
    before = load(config)
    lines = (config.parent / ".env.example").read_text().splitlines()
    given = [line.removeprefix("# ") for line in lines if "PENSTOCK_" in line]
    (tmp_path / ".env").write_text("\n".join(given) + "\n")
    settings = load(config)
    assert await driver_problems(settings) == []
    assert (set(settings.routes), set(settings.sources)) == (
        set(before.routes),
        set(before.sources),
    )
    sources = settings.sources.values()
    places = [settings.store, *(route.sink for route in settings.routes.values())]
    places += [
        address for source in sources for address in (source.from_, source.dead_letter or "")
    ]
    assert not [place for place in places if "localhost" in place]
