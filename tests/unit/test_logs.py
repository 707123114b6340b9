"""Logs: JSON or text, no secrets, rotated files, an error for one that cannot be written."""

import io
import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from penstock.model.errors import ConfigError
from penstock.ports.sink import SinkOptions
from penstock.sinks.log import open_sink
from penstock.telemetry.logs import LogHandler, setup_logging
from penstock.testing.sink_suite import message

log = logging.getLogger("penstock.some.part")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("penstock")
    levels = root.level, ours.level
    yield
    for handler in [each for each in root.handlers if isinstance(each, LogHandler)]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    logging.captureWarnings(False)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_elsewhere_than_in_a_terminal_a_line_is_json() -> None:
    stream = io.StringIO()
    setup_logging(stream=stream)
    log.info("took %d of %s", 3, "push", extra={"route": "push", "path": Path("/x")})
    (line,) = lines(stream)
    moment = str(line.pop("timestamp"))
    assert moment.endswith("Z")
    assert len(moment) == len("2030-01-01T00:00:00.123Z")
    assert line == {
        "message": "took 3 of push",
        "level": "info",
        "logger": "penstock.some.part",
        "route": "push",
        "path": "/x",
    }


def test_in_a_terminal_a_line_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    setup_logging(stream=stream)
    log.info("took %d", 3, extra={"route": "push"})
    shown = stream.getvalue()
    assert "took 3" in shown
    assert "route=push" in shown
    assert "\x1b" not in shown


def test_the_format_can_be_chosen() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    setup_logging("info", "json", stream=terminal)
    log.info("one")
    setup_logging("info", "text", stream=pipe)
    log.info("two")
    assert lines(terminal)[0]["message"] == "one"
    assert not pipe.getvalue().startswith("{")
    assert "two" in pipe.getvalue()


def test_the_level_is_ours_and_a_librarys_debugging_stays_out() -> None:
    stream = io.StringIO()
    setup_logging("debug", stream=stream)
    log.debug("ours")
    logging.getLogger("aiohttp.client").debug("theirs")
    setup_logging("warning", stream=stream)
    log.info("quiet")
    assert [line["message"] for line in lines(stream)] == ["ours"]


async def test_the_log_sinks_line_is_fields() -> None:
    stream = io.StringIO()
    setup_logging(stream=stream)
    sink = await open_sink("log://", SinkOptions())
    await sink.send([message(payload=b"12")])
    (line,) = lines(stream)
    assert line["message"] == "message"
    assert (line["message_id"], line["size"], line["late_ms"]) == ("m-1", 2, 3)


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_secrets_are_never_written(log_format: str) -> None:
    stream = io.StringIO()
    setup_logging("info", "json" if log_format == "json" else "text", stream=stream)
    log.info(
        "to https://u:hush1@host/ with %s and Bearer hush2.x and Basic aHVzaDM=hush3",
        "whsec_hush4",
        extra={"api_token": "hush5", "Authorization": "hush6", "url": "redis://:hush7@h"},
    )
    log.info("postgresql://u:slash/hush9@h/db cannot be reached")
    log.info("postgresql://u:qu'hush10@h/db and postgresql://u:slash/hush11@h/db")
    log.error("failed", exc_info=ValueError("amqp://u:hush8@h"))
    shown = stream.getvalue()
    assert "hush" not in shown
    assert "https://***@host/" in shown
    assert "ValueError: amqp://***@h" in shown


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_text_of_any_length_and_characters_is_one_line_that_can_be_written(
    log_format: Literal["json", "text"],
) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8")
    handler = setup_logging("info", log_format, stream=stream)
    error = ValueError("begins " + "x" * 1_000_000 + " ends")
    # To our handler alone: the runner of the tests could not pass such a text on.
    handler.handle(
        logging.makeLogRecord(
            {
                "name": log.name,
                "levelno": logging.WARNING,
                "levelname": "WARNING",
                "msg": "raised half a pair: \ud800",
                "exc_info": (ValueError, error, None),
            }
        )
    )
    stream.flush()
    shown = raw.getvalue().decode()
    assert "half a pair: \\ud800" in shown.replace("\\\\", "\\")
    assert "characters left out" in shown
    assert " ends" in shown
    assert len(shown) < 50_000


def test_a_cut_through_an_address_shows_no_part_of_its_password() -> None:
    stream = io.StringIO()
    setup_logging("info", "json", stream=stream)
    address = "postgresql://user:hushhushhush@host/db "
    for offset in range(len(address)):
        log.info("%s%s", "x" * offset, address * 1_000)
    shown = stream.getvalue()
    assert "characters left out" in shown
    assert "hush" not in shown


def test_repeated_warnings_are_counted_not_written() -> None:
    stream = io.StringIO()
    handler = setup_logging(stream=stream)
    for _ in range(100):
        log.warning("store away: %s", "refused")
    logging.getLogger().removeHandler(handler)
    handler.close()
    first, told = lines(stream)
    assert first["message"] == "store away: refused"
    assert str(told["message"]).startswith("store away: refused (again, 99 times in ")
    assert told["repeats"] == 99


def test_a_file_is_json_and_rotated(tmp_path: Path) -> None:
    file = tmp_path / "new" / "penstock.log"
    setup_logging("info", "text", file, stream=io.StringIO(), max_bytes=1000, backups=2)
    for number in range(100):
        log.info("line %d", number)
    assert sorted(path.name for path in file.parent.iterdir()) == [
        "penstock.log",
        "penstock.log.1",
        "penstock.log.2",
    ]
    assert json.loads(file.read_text().splitlines()[-1])["message"] == "line 99"


def test_a_file_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"log\.file: cannot write .*: Is a directory"):
        setup_logging(file=tmp_path, stream=io.StringIO())


def test_setting_up_again_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    setup_logging(stream=first)
    setup_logging(stream=second)
    log.info("once")
    assert first.getvalue() == ""
    assert len(lines(second)) == 1


def test_a_log_file_can_be_read_by_nobody_else_rotated_or_not(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        handler = setup_logging("info", "json", tmp_path / "it.log", max_bytes=500, backups=2)
        try:
            for number in range(10):
                logging.getLogger("penstock").info("line %d %s", number, "x" * 100)
        finally:
            handler.close()
    finally:
        os.umask(before)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("it.log", "it.log.1", "it.log.2"), 0o600)
