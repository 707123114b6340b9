"""The address of a webhook as it may be shown."""

import re

import pytest

from penstock.model.outcome import Dead
from penstock.model.shown import shown_webhook
from penstock.ports.sink import SinkOptions
from penstock.settings.secrets import redact
from penstock.sim.receiver import Receiver
from penstock.sim.replies import Reply
from penstock.sinks.webhook import open_sink
from penstock.testing.sink_suite import message

SLACK = "https://hooks.slack.com/services/T0000/B0000/SLACKSECRETXXXX"


@pytest.mark.parametrize("shown", [shown_webhook, redact])
def test_scheme_and_host_are_shown_and_a_hash_in_place_of_the_path(shown: object) -> None:
    assert callable(shown)
    assert re.fullmatch(r"https://hooks\.slack\.com/…#[0-9a-f]{4}", shown(SLACK))
    assert shown(SLACK) != shown(SLACK + "Y")
    assert shown("https://h/a?key=x") != shown("https://h/a?key=y")
    assert shown("https://h:8443/") == shown("https://h:8443") == "https://h:8443/"
    assert "opensesame" not in shown("https://ann:opensesame@h/secret")
    assert "secret" not in shown("HTTP://h/secret")


async def test_the_sink_is_named_without_its_path() -> None:
    sink = await open_sink(SLACK, SinkOptions())
    assert sink.name == shown_webhook(SLACK)
    await sink.close()


async def test_an_answer_that_repeats_the_path_is_kept_without_it() -> None:
    async with Receiver() as receiver:
        path = "/services/T0000/SLACKSECRETXXXX"
        receiver.always(Reply(status=404, body=f"Cannot POST {path}?k=hushhush; SLACKSECRETXXXX0"))
        sink = await open_sink(f"{receiver.url}{path}0?k=hushhush", SinkOptions(timeout=30))
        (outcome,) = await sink.send([message()])
        await sink.close()
    assert isinstance(outcome, Dead)
    said = f"{outcome.error} {outcome.answer}"
    assert "hushhush" not in said
    assert "SLACKSECRETXXXX0" not in said
