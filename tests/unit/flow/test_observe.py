"""What is counted of the store's answers, and what the log says of an outage."""

from __future__ import annotations

import logging

import pytest

from penstock.flow.observe import Observer
from penstock.model.errors import StoreUnavailable


def _fail(observer: Observer, kind: str) -> None:
    with pytest.raises(StoreUnavailable), observer.asking(kind):
        raise StoreUnavailable("redis://h is away: refused")


def test_an_outage_is_told_when_it_begins_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    seconds = iter(range(100))
    observer = Observer(lambda: float(next(seconds)))
    for _ in range(3):
        _fail(observer, "put")
        _fail(observer, "reap")
    with observer.asking("claim"):  # a store may answer one kind of call and not another
        pass
    with observer.asking("put"):
        pass
    with observer.asking("put"):
        pass
    assert [record.getMessage() for record in caplog.records] == [
        "store away, nothing is accepted: redis://h is away: refused",
        "the store is back, messages are accepted again after 9.0 s",
    ]
    assert observer.store["put"].errors == 3
