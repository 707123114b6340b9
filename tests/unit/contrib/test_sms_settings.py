"""The SMS system's keys, by the names they always had."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from penstock.contrib.sms.producer import random_sms
from penstock.contrib.sms.settings import (
    LOG_NAMES,
    NAMES,
    SmsSettings,
    is_configured,
    read_sms_settings,
)
from penstock.model.errors import ConfigError


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES + LOG_NAMES:
        monkeypatch.delenv(name, raising=False)


def test_without_any_key_it_is_all_on_this_machine() -> None:
    settings = read_sms_settings({})
    assert settings == SmsSettings()
    assert (settings.retry_queue, settings.dead_queue) == ("sms_queue.retry", "sms_queue.dead")
    assert not is_configured({})


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("mq", "amqp://mq:5672/"),
        ("mq:5673", "amqp://mq:5673/"),
        ("[::1]", "amqp://[::1]:5672/"),
        ("[::1]:99", "amqp://[::1]:99/"),
        ("amqps://u:p@mq/v", "amqps://u:p@mq/v"),
    ],
)
def test_a_host_is_a_name_a_host_and_port_or_a_whole_url(host: str, url: str) -> None:
    assert read_sms_settings({"RABBITMQ_HOST": host}).rabbitmq == url


def test_the_environment_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_NAME", "from-the-environment")
    settings = read_sms_settings({"QUEUE_NAME": "from-the-file", "FAILURE_RATE": "0.25"})
    assert (settings.queue, settings.failure_rate) == ("from-the-environment", 0.25)
    assert is_configured({})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FAILURE_RATE", "2"),
        ("FAILURE_RATE", "often"),
        ("MEAN_PROCESSING_TIME", "-1"),
        ("MONITOR_UPDATE_INTERVAL", "0"),
        ("MONITOR_UPDATE_INTERVAL", "nan"),
        ("LOG_FORMAT", "xml"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        read_sms_settings({name: value})


def test_how_it_logs_says_nothing_of_where_it_is() -> None:
    keys = {"LOG_FORMAT": "JSON", "SENDER_LOG_FILE": "s.log", "MONITOR_LOG_FILE": "m.log"}
    settings = read_sms_settings(keys)
    assert (settings.log_format, settings.sender_log_file, settings.monitor_log_file) == (
        *("json", Path("s.log")),
        Path("m.log"),
    )
    assert not is_configured(keys)


def test_a_url_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="redis://"):
        read_sms_settings({"REDIS_HOST": "http://cache"})


def test_passwords_are_not_shown() -> None:
    settings = read_sms_settings({"REDIS_HOST": "redis://:hidden@cache"})
    assert "hidden" not in repr(settings)


def test_a_random_message_has_the_shape_of_the_contract() -> None:
    sms = random_sms(random.Random(1))
    assert re.fullmatch(r"\+\d{10}", sms.phone_number)
    assert len(sms.message) == 100
