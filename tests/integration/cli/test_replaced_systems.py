"""Who does not use a replaced system does not meet it on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli.conftest import Cli


@pytest.mark.parametrize("words", [(), ("serve",), ("worker",), ("monitor",), ("sim", "crowd")])
def test_help_speaks_of_none(cli: Cli, folder: Path, words: tuple[str, ...]) -> None:
    text = cli(*words, "--help").out.lower()
    assert "sms" not in text
    assert "ticks" not in text
    assert "dispatcher" not in text


def test_their_simulators_are_commands_of_sim(cli: Cli, folder: Path) -> None:
    text = cli("sim", "--help").out
    for word in ("generate", "consume", "provider", "sms-producer", "sms-sender", "crowd"):
        assert word in text
    headings = ("Any system:", "Ticks:", "Sender:", "SMS:", "Dispatcher:", "Scheduler service:")
    assert all(f"\n{heading}\n" in text for heading in headings)
    assert "\nCommands:\n" not in text, "each stands under its system"
