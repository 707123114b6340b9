"""Settings → the parts of one process."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from penstock.flow.control import Control
from penstock.flow.erase import Erase
from penstock.flow.fleet import Fleet
from penstock.flow.intake import Intake
from penstock.flow.observe import Observer
from penstock.flow.policies import Policies
from penstock.flow.recur import Plant
from penstock.flow.recurring import Configured, Recurring
from penstock.flow.status import Status
from penstock.model.errors import ConfigError
from penstock.model.fleet import ProcessName, Role
from penstock.model.route import Route
from penstock.model.zone import DEFAULT_ZONE
from penstock.ports.store import Store
from penstock.settings import Settings
from penstock.settings.secrets import redact
from penstock.time.clock import Clock
from penstock.version import __version__
from penstock.wiring.hop import announcing
from penstock.wiring.stores import open_store


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one process."""

    settings: Settings
    store: Store
    observer: Observer
    intake: Intake
    control: Control
    erase: Erase
    routes: Mapping[str, Route]
    fleet: Fleet
    """This process among the others on the store."""
    policies: Policies | None = None
    """None if the store has no policies."""
    recurring: Recurring | None = None
    """None if the store has no recurring rules."""
    plant: Plant | None = None
    """The put by which a worker's planter stores occurrences."""
    known_routes: set[str] = field(default_factory=set)
    """Routes that messages and rules may name; a program's functions may add theirs."""
    any_route: bool = False
    """True: names that are not configured are accepted too, for another process to serve."""

    @property
    def sinks(self) -> dict[str, str]:
        """Every configured route with its sink's address, without secrets."""
        return {name: redact(route.sink) for name, route in self.settings.all_routes().items()}

    def status(self) -> Status:
        """The status, with the routes of these settings."""
        return Status(
            self.store, self.fleet, self.sinks, version=__version__, recurring=self.recurring
        )


@asynccontextmanager
async def open_parts(
    settings: Settings,
    *,
    any_route: bool = False,
    store: Store | None = None,
    role: Role = "embedded",
    clock: Clock | None = None,
) -> AsyncIterator[Parts]:
    """Open the store and the parts on it; close them at the end."""
    async with AsyncExitStack() as stack:
        if store is None:
            store = await open_store(settings, clock)
            stack.push_async_callback(store.close)
        _check_payload(settings, store)
        observer = Observer(time.perf_counter)
        routes = {name: part.as_route(name) for name, part in settings.all_routes().items()}
        await _keep_turns(store, routes)
        names = set(routes)
        known = None if any_route else names
        intake = Intake(
            store.messages,
            observer,
            routes=known,
            max_payload=settings.limits.max_payload,
            max_message=store.max_message,
            min_delay=settings.limits.min_delay,
            max_delay=settings.limits.max_delay,
            put=await announcing(settings, store, stack),
        )
        stack.push_async_callback(intake.drain)
        policies = policies_of(store, settings.limits.zone)
        fleet = Fleet(store, observer, name=process_name(), role=role, version=__version__)
        plant = plant_of(store, intake, observer, known, fleet)
        yield Parts(
            settings=settings,
            store=store,
            observer=observer,
            intake=intake,
            control=Control(store.messages, observer),
            erase=Erase(store.messages, policies),
            policies=policies,
            routes=routes,
            fleet=fleet,
            recurring=recurring_of(store, intake, plant, known, settings.limits.max_payload),
            plant=plant,
            known_routes=names,
            any_route=any_route,
        )


def process_name() -> ProcessName:
    return ProcessName(socket.gethostname(), os.getpid(), secrets.token_hex(4))


async def put_configured(parts: Parts) -> None:
    """Put the settings' policies and recurring rules into the store at the start.

    Others in the store stay, except rules that an earlier start put there as `managed`.
    """
    settings, name = parts.settings, parts.store.name
    if parts.policies is not None:
        await parts.policies.begin(*settings.all_rules())
    elif any(settings.all_rules()):
        raise ConfigError(f"policies: the store {name} keeps none")
    if parts.recurring is not None:
        await parts.recurring.reconcile(
            {
                rule_id: Configured(rule, managed)
                for rule_id, (rule, managed) in settings.all_recurring().items()
            }
        )
    elif settings.recurring:
        raise ConfigError(f"recurring: the store {name} keeps no rules")


def plant_of(
    store: Store, intake: Intake, observer: Observer, routes: AbstractSet[str] | None, fleet: Fleet
) -> Plant | None:
    """The put of the rules' occurrences; None if the store has no recurring rules."""
    if store.recurring is None:
        return None

    async def served() -> frozenset[str]:
        everyone = await fleet.everyone()
        return frozenset(name for beat in fleet.alive(everyone) for name in beat.routes)

    return Plant(store.recurring, store, intake, observer, routes=routes, served=served)


def recurring_of(
    store: Store,
    intake: Intake,
    plant: Plant | None,
    routes: AbstractSet[str] | None,
    max_payload: int,
) -> Recurring | None:
    """The store's rules; None if it has no recurring rules."""
    if store.recurring is None or plant is None:
        return None
    return Recurring(store.recurring, store, intake, plant, routes=routes, max_payload=max_payload)


def policies_of(store: Store, zone: str = DEFAULT_ZONE) -> Policies | None:
    """The store's policies; None if it has no policies."""
    if store.policies is None:
        return None
    store.policies.use_zone(zone)
    return Policies(store.policies, store.clock)


async def _keep_turns(store: Store, routes: Mapping[str, Route]) -> None:
    """Declare the routes with a promise per key, before this process puts a message."""
    promised = [name for name, route in routes.items() if route.per_key is not None]
    if promised and store.turns is not None:
        await store.turns.keep_turns(promised)


def _check_payload(settings: Settings, store: Store) -> None:
    """Check the payload limit at the start, not when a caller's message does not fit."""
    most = store.max_message
    if most is not None and settings.limits.max_payload > most:
        raise ConfigError(f"limits.max_payload: the store {store.name} takes {most:,} bytes")
