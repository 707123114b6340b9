"""One suite for every store: the executable form of `penstock.ports.store`.

    class TestMyStore(DurableStoreSuite):
        @pytest_asyncio.fixture
        async def harness(self):
            harness = MyHarness()          # penstock.testing.store_harness.StoreHarness
            yield harness
            await harness.close()

Needs pytest and pytest-asyncio in auto mode. Nothing in it knows a particular store, and time
passes only through the harness, so a server's own clock will do.
"""

from __future__ import annotations

from penstock.testing.store_cases.control import AmendCases, TimelineCases
from penstock.testing.store_cases.erasing import EraseCases
from penstock.testing.store_cases.intake import IntakeCases
from penstock.testing.store_cases.keeping import PurgeCases, WakeCases
from penstock.testing.store_cases.leases import ClaimCases, LeaseCases, SettleCases
from penstock.testing.store_cases.lists import FigureCases, SearchCases
from penstock.testing.store_cases.refusals import AllowCases, RefusalCases
from penstock.testing.store_cases.restart import RestartCases


class StoreSuite(
    IntakeCases,
    ClaimCases,
    SettleCases,
    LeaseCases,
    AllowCases,
    RefusalCases,
    AmendCases,
    TimelineCases,
    EraseCases,
    SearchCases,
    FigureCases,
    PurgeCases,
    WakeCases,
):
    """All promises of the port within one life of a store."""


class DurableStoreSuite(StoreSuite, RestartCases):
    """Also tests that a crash or restart loses nothing: for every store except in memory."""
