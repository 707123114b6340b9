"""What happened in a run: every step in order, what went wrong around it, what was found wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.simulation.clocks import ServerClock


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened. `about` is a message id, a key or a visitor, or empty."""

    elapsed: int
    who: str
    what: str
    about: str = ""
    facts: str = ""

    def __str__(self) -> str:
        return (
            f"{self.elapsed / 1000:9.3f} s  {self.who:<8} {self.what:<18} {self.about} {self.facts}"
        )


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault that was injected; `who` is empty when it is everybody's."""

    elapsed: int
    kind: str
    who: str = ""
    until: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """A promise that did not hold."""

    promise: str
    about: str
    told: str
    others: tuple[str, ...] = ()
    """What else it is about: told of in the story too."""

    def __str__(self) -> str:
        return f"{self.promise}: {self.told}" + (f" [{self.about}]" if self.about else "")


@dataclass(slots=True)
class Journal:
    clock: ServerClock
    lines: list[Line] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def note(self, who: str, what: str, about: str = "", facts: str = "") -> None:
        self.lines.append(Line(self.clock.elapsed(), who, what, about, facts))

    def trouble(self, kind: str, who: str = "", span: int = 0) -> None:
        now = self.clock.elapsed()
        self.troubles.append(Trouble(now, kind, who, now + span))
        self.lines.append(Line(now, who or "world", "FAULT", kind, f"{span} ms" if span else ""))

    def fail(self, promise: str, about: str, told: str, others: Iterable[str] = ()) -> None:
        self.failures.append(Failure(promise, about, told, tuple(others)))
        self.lines.append(
            Line(self.clock.elapsed(), "check", "BROKEN", about, f"{promise}: {told}")
        )

    def troubled(self, who: str, since: int, until: int) -> bool:
        """Was there a fault that this process could have felt in that time?

        One that was over when it began is none: an answer that came late is acted on after that.
        """
        return any(
            trouble.who in ("", who)
            and trouble.elapsed <= until
            and (trouble.elapsed >= since or trouble.until > since)
            for trouble in self.troubles
        )

    def clocks_were_set(self) -> bool:
        return any(trouble.kind.startswith("clock") for trouble in self.troubles)

    def digest(self) -> str:
        told = hashlib.sha256()
        for line in self.lines:
            told.update(repr((line.elapsed, line.who, line.what, line.about, line.facts)).encode())
        return told.hexdigest()

    def story(self, abouts: Iterable[str]) -> list[str]:
        """Everything about these, with the faults between the first of it and the last."""
        wanted = set(abouts) - {""}
        mine = [line for line in self.lines if line.about in wanted]
        if not mine:
            return [str(line) for line in self.lines if line.what in ("FAULT", "BROKEN")]
        begins = mine[0].elapsed
        ends = max((one.elapsed for one in mine if one.what != "BROKEN"), default=begins)
        return [
            str(line)
            for line in self.lines
            if line.about in wanted
            or line.what == "BROKEN"
            or (line.what in ("FAULT", "MENDED") and begins <= line.elapsed <= ends)
        ]
