"""grpc.health.v1: whether messages can be taken now."""

from __future__ import annotations

import asyncio

from grpc_health.v1.health import aio
from grpc_health.v1.health_pb2 import HealthCheckResponse

from penstock.flow.status import Status

PERIOD = 1.0
"""Seconds between looks at the store."""


class Health(aio.HealthServicer):
    """The standard health service; the status of our services follows the store."""

    def __init__(self, status: Status, services: tuple[str, ...]) -> None:
        super().__init__()
        self._status = status
        self._services = ("", *services)

    async def follow(self) -> None:
        """Look at the store again and again, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(PERIOD)

    async def look(self) -> None:
        """Update the status from the store's."""
        ready = (await self._status.readiness()).status == "ready"
        said = HealthCheckResponse.SERVING if ready else HealthCheckResponse.NOT_SERVING
        for service in self._services:
            await self.set(service, said)
