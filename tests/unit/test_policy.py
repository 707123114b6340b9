"""Policies as they are written: read exactly, and nonsense refused with the field named."""

import msgspec
import pytest

from penstock.flow.policies import Policies
from penstock.model.errors import InvalidMessage, Malformed
from penstock.model.policy import (
    Cap,
    Pace,
    Policy,
    Quiet,
    Suppression,
    check_policy_id,
    decode_policy,
    decode_suppression,
    parse_rate,
    policy_from,
)
from penstock.stores.memory.policies import MemoryPolicies
from penstock.testing.clock import ManualClock

CAP = {"kind": "cap", "scope": ["key"], "limit": 3, "window": "24h"}
QUIET = {"kind": "quiet", "from": "22:00", "to": "08:00"}
PACE = {"kind": "pace", "rate": "50/s"}

EXAMPLES: list[dict[str, object]] = [
    {
        "kind": "cap",
        "scope": ["key", "channel"],
        "limit": 3,
        "window": "24h",
        "max_defer": "3d",
        "applies_to": {"class": ["promotional"]},
        "bypass": ["transactional"],
    },
    {
        "kind": "cap",
        "scope": ["key"],
        "limit": 10,
        "window": {"calendar": "week", "zone": "Europe/Berlin"},
        "on_exceed": "BLOCK",
    },
    {
        "kind": "quiet",
        "from": "22:00",
        "to": "08:00",
        "days": ["mon", "tue"],
        "zone": "Asia/Seoul",
        "bypass": ["transactional"],
    },
    {"kind": "pace", "rate": "50/s", "burst": 10, "applies_to": {"route": ["push"]}},
    {"kind": "cap", "scope": ["tag"], "min_interval": "90s", "shadow": True},
]


@pytest.mark.parametrize("written", EXAMPLES)
def test_a_policy_is_read_and_written_in_the_same_words(written: dict[str, object]) -> None:
    policy = decode_policy(msgspec.json.encode(written))
    assert msgspec.json.decode(msgspec.json.encode(policy)) == written
    assert policy_from(written) == policy


def test_the_kind_chooses_the_type() -> None:
    kinds: list[type[Policy]] = [Cap, Quiet, Pace]
    for written, kind in zip((CAP, QUIET, PACE), kinds, strict=True):
        assert type(policy_from(written)) is kind


@pytest.mark.parametrize(
    ("base", "change", "field"),
    [
        (CAP, {"limit": 0}, "limit"),
        (CAP, {"limit": -1}, "limit"),
        (CAP, {"limit": "3"}, "limit"),
        (CAP, {"limit": None}, "limit"),
        (CAP, {"window": "0s"}, "window"),
        (CAP, {"window": 0}, "window"),
        (CAP, {"window": -5}, "window"),
        (CAP, {"window": "soon"}, "window"),
        (CAP, {"window": "500d"}, "window"),
        (CAP, {"window": None}, "window"),
        (CAP, {"window": {"calendar": "fortnight"}}, "window.calendar"),
        (CAP, {"window": {"calendar": "day", "zone": "Mars/Base"}}, "window.zone"),
        (CAP, {"scope": []}, "scope"),
        (CAP, {"scope": ["key", "key"]}, "scope"),
        (CAP, {"scope": ["planet"]}, "scope[0]"),
        (CAP, {"on_exceed": "MAYBE"}, "on_exceed"),
        (CAP, {"max_defer": "0s"}, "max_defer"),
        (CAP, {"min_interval": "0s"}, "min_interval"),
        (CAP, {"applies_to": {"class": []}}, "applies_to.class"),
        (CAP, {"applies_to": {"colour": ["red"]}}, "applies_to.colour"),
        (CAP, {"bypass": ["\n"]}, "bypass"),
        (CAP, {"burst": 3}, "burst"),
        (CAP, {"kind": "hat"}, "kind"),
        (QUIET, {"to": "22:00"}, "to"),
        (QUIET, {"from": "25:00"}, "from"),
        (QUIET, {"from": "24:00"}, "from"),
        (QUIET, {"to": "24:30"}, "to"),
        (QUIET, {"to": "8"}, "to"),
        (QUIET, {"from": "00:00", "to": "24:00"}, "to"),
        (QUIET, {"days": []}, "days"),
        (QUIET, {"days": ["mon", "mon"]}, "days"),
        (QUIET, {"zone": "Nowhere/Town"}, "zone"),
        (QUIET, {"spread": -1}, "spread"),
        (PACE, {"rate": "0/s"}, "rate"),
        (PACE, {"rate": "fast"}, "rate"),
        (PACE, {"rate": "1/0s"}, "rate"),
        (PACE, {"rate": "1000000/s"}, "rate"),
        (PACE, {"burst": 0}, "burst"),
    ],
)
def test_nonsense_is_refused_with_the_field_named(
    base: dict[str, object], change: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidMessage) as caught:
        policy_from({**base, **change})
    assert caught.value.field == field


def test_a_missing_field_is_named() -> None:
    with pytest.raises(InvalidMessage) as caught:
        decode_policy(b'{"kind":"quiet","from":"22:00"}')
    assert caught.value.field == "to"
    with pytest.raises(InvalidMessage) as caught:
        decode_policy(b'{"scope":["key"],"limit":3,"window":"24h"}')
    assert caught.value.field == "kind"


def test_what_is_not_json_is_malformed() -> None:
    with pytest.raises(Malformed):
        decode_policy(b"{")
    with pytest.raises(Malformed):
        decode_suppression(b"{")


def test_rates_are_read_exactly() -> None:
    assert parse_rate("50/s") * 1000 == 50
    assert parse_rate("3000/m") == parse_rate("50/s")
    assert parse_rate("1/5s") * 5000 == 1
    assert parse_rate("2.5/s") * 2000 == 5


def test_a_legal_opt_out_cannot_be_bypassed() -> None:
    assert decode_suppression(b'{"keys":["user1"],"legal":true}').keys == ("user1",)
    with pytest.raises(InvalidMessage) as caught:
        decode_suppression(b'{"keys":["a"],"legal":true,"bypass":["transactional"]}')
    assert caught.value.field == "bypass"
    with pytest.raises(InvalidMessage) as caught:
        decode_suppression(b'{"keys":[""]}')
    assert caught.value.field == "keys"


def test_ids_of_policies_are_plain_names() -> None:
    assert check_policy_id("three-a-day") == "three-a-day"
    with pytest.raises(InvalidMessage):
        check_policy_id("a/b")


async def test_keys_of_the_settings_are_added_to_a_list_that_is_there() -> None:
    store = MemoryPolicies()
    policies = Policies(store, ManualClock(0))
    await policies.begin({}, {"optout": Suppression(keys=("ann",), legal=True)})
    await policies.suppress("optout", add=["bob"])
    for legal in (True, False):
        await policies.begin({}, {"optout": Suppression(keys=("cid",), legal=legal)})
        expected = Suppression(keys=("ann", "bob", "cid"), legal=legal)
        assert await policies.suppression("optout") == expected
