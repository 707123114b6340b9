"""The tiered store's URL: what it may say, and what is said of one that cannot work."""

from __future__ import annotations

import pytest

from penstock.model.errors import ConfigError
from penstock.stores.dynamodb.address import parse_address

REDIS = "redis=redis://h:6379/0"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("dynamodb+redis:///table", r"redis= must be the URL of a Redis.*\?redis=redis://host"),
        ("dynamodb+redis:///table?redis=http://h", "redis= must be the URL of a Redis"),
        ("dynamodb+redis:///table?redis=redis://h/x", "the database 'x' is not a number"),
        (f"dynamodb+redis:///t?{REDIS}", "a table of 3-255"),
        (f"dynamodb+redis://key@h:8000/table?{REDIS}", "give both, KEY:SECRET@"),
        (f"dynamodb+redis:///table?{REDIS}&shard=8", "no option 'shard'; did you mean shards"),
        (f"dynamodb+redis:///table?{REDIS}&shards=0", "shards must be 1-1024"),
        (f"dynamodb+redis:///table?{REDIS}&forget=soon", "one of ttl, exact, not 'soon'"),
        (f"dynamodb+redis:///table?{REDIS}&near=soon", "near: must be seconds or a text"),
    ],
)
def test_an_address_that_cannot_work_is_told(url: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_address(url)


@pytest.mark.parametrize(
    "redis", ["redis+cluster://a:1,b:2", "redis%2Bcluster://a:1,b:2", "redis+cluster://:p+w@a:1"]
)
def test_the_near_future_may_be_in_a_cluster(redis: str) -> None:
    found = parse_address(f"dynamodb+redis:///table?redis={redis}&shards=8").redis
    assert found.cluster
    assert found.password in (None, "p+w")
