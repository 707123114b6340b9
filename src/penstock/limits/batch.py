"""Whole batches over loaded books: the steps of every store between loading and writing back."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.limits import bulk, engine
from penstock.limits.books import Books, Needs
from penstock.limits.rules import Rules
from penstock.model.decision import Conclusion, Decision, PaceAllowance, Subject


def decide_batch(
    rules: Rules,
    subjects: Sequence[Subject],
    now: int,
    hold: int,
    books: Books,
    needs: Needs | None = None,
) -> list[Decision]:
    """One decision each, in order: the same as one by one. `needs`: of these subjects, if known."""
    until = now + hold
    batch = bulk.Batch(rules, subjects, needs or Needs(rules, subjects))
    if batch.has_room(now, books):
        return batch.decide(now, until, books)
    return [engine.decide(rules, subject, now, until, books) for subject in subjects]


def explain_batch(
    rules: Rules, subjects: Sequence[Subject], now: int, books: Books
) -> list[Decision]:
    return [engine.explain(rules, subject, now, books) for subject in subjects]


def conclude_batch(
    rules: Rules,
    conclusions: Sequence[Conclusion],
    now: int,
    books: Books,
    needs: Needs | None = None,
) -> None:
    """`needs`: of their subjects, where they are known."""
    if bulk.all_sent(conclusions):
        subjects = [conclusion.subject for conclusion in conclusions]
        count_batch(rules, subjects, now, books, needs or Needs(rules, subjects))
        return
    for conclusion in conclusions:
        engine.conclude(rules, conclusion, now, books)


def count_batch(
    rules: Rules, subjects: Sequence[Subject], now: int, books: Books, needs: Needs
) -> None:
    """Count all subjects as sent now."""
    bulk.Batch(rules, subjects, needs).count(now, books)


def room_on(rules: Rules, route: str, now: int, books: Books) -> PaceAllowance | None:
    """The allowance of the paces that cover the whole route; None: there is no such pace."""
    rooms = [pace.rate.room(books.pace(pace), now) for pace in rules.whole_paces(route)]
    if not rooms:
        return None
    number = min(number for number, _ in rooms)
    return PaceAllowance(number, None if number else max(again for _, again in rooms))
