"""What goes wrong with processes, their network, their clocks and those they send to."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.fleet import Fleet
from tests.simulation.plan import UNSTORABLE, Event, Kind
from tests.simulation.process import FleetProcess
from tests.simulation.weather import Fate

MEASURE_MS = 5_000
"""How long a process does not notice that its clock is wrong."""


class Faults:
    """Makes the plan's events happen until everything is mended."""

    def __init__(self, fleet: Fleet, operate: Callable[[Event], None]) -> None:
        self._fleet = fleet
        self._loop = fleet.loop
        self._operate = operate
        """What people do is not a fault, but comes at its moment too."""
        self._over = False

    def happen(self, event: Event) -> None:
        if self._over:
            return
        process = self._fleet.processes.get(event.target)
        match event.kind:
            case Kind.CRASH if process is not None:
                self._crash(process, event)
            case Kind.RESTART if process is not None:
                process.stop()
                self._loop.later((event.span + 3_000) / 1000, process.start)
            case Kind.FREEZE if process is not None:
                process.freeze(event.span)
            case Kind.AWAY | Kind.LOSSY:
                self._bad_weather(event)
            case Kind.SINK:
                self._mood(event.target, event.detail, event.span)
            case Kind.JUMP:
                self._jump(event)
            case Kind.GROW:
                self._fleet.server.grow()
            case Kind.BROKER:
                self._fleet.broker.away = True
                self._loop.later(event.span / 1000, self._broker_back)
            case _:
                self._operate(event)

    def stay(self, event: Event) -> None:
        """From now on, and whatever is mended."""
        fleet = self._fleet
        fleet.journal.note("world", "STAYS", "", f"{event.kind} {event.target} {event.detail}")
        match event.kind:
            case Kind.SINK:
                fleet.receivers[event.target].feel(event.detail, for_ever=True)
            case Kind.LINK:
                lost = Fate.LOST_REQUEST if event.detail == "requests" else Fate.LOST_REPLY
                fleet.processes[event.target].weather.cut(lost)
            case Kind.POISON:
                fleet.server.books.refuses = UNSTORABLE
            case _:
                fleet.server.books.away = f"{event.detail} {event.target}".strip()

    def end(self) -> None:
        """From here on nothing goes wrong; what is under way may still take its time."""
        self._over = True
        self._fleet.journal.note("world", "MENDED")
        self._broker_back()
        for receiver in self._fleet.receivers.values():
            receiver.feel("")
        for process in self._fleet.processes.values():
            process.weather.clear()

    def _crash(self, process: FleetProcess, event: Event) -> None:
        down = (event.span + 500) / 1000
        if process.life is not None:
            if event.value:
                self._light_fuse(process, event.value, down)
            else:
                process.kill()
        self._loop.later(down, process.start)

    def _light_fuse(self, process: FleetProcess, callbacks: int, down: float) -> None:
        """A quiet process may take longer to get so far than it is to be down: then it starts again
        that long after its end, and not only when everything is mended."""
        assert process.life is not None
        owner, expected = process.life.owner, self._loop.time() + down

        def blow() -> None:
            process.kill()
            if self._loop.time() >= expected:
                self._loop.later(down, process.start)

        owner.fuse, owner.blow = callbacks, blow

    def _bad_weather(self, event: Event) -> None:
        for process in self._fleet.processes.values():
            if event.target in ("", process.name):
                if event.kind is Kind.AWAY:
                    process.weather.away(event.span)
                else:
                    process.weather.lossy(event.span, event.value / 100)

    def _mood(self, route: str, mood: str, span: int) -> None:
        receiver = self._fleet.receivers[route]
        self._fleet.journal.note(route, "mood", "", mood)
        receiver.feel(mood)
        self._loop.later(span / 1000, lambda: receiver.feel(""))

    def _jump(self, event: Event) -> None:
        fleet = self._fleet
        told = f"clock {event.target or 'of the store'} {event.value:+} ms"
        fleet.journal.trouble(told, span=MEASURE_MS + 2 * fleet.plan.lease)
        fleet.jumped = True
        if not event.target or not fleet.plan.skewed:
            fleet.clock.set_by += event.value
            fleet.set_back += max(0, -event.value)
            return
        process = fleet.processes[event.target]
        process.set_offset(process.offset + event.value)
        # Measured against the store's clock again before long.
        self._loop.later(MEASURE_MS / 1000, lambda: process.set_offset(process.config.offset))

    def _broker_back(self) -> None:
        self._fleet.broker.away = False
