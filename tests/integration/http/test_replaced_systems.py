"""A server shows nothing of the systems that it does not stand in for."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.contrib import mounts
from penstock.settings import given
from tests.integration.http.conftest import Serve

TICK = {"item": "user1234", "at": "2040-01-31T09:00:00Z"}


async def test_without_them_there_is_nothing_of_them(serve: Serve) -> None:
    async with serve(mounted=mounts(given())) as running, running.client() as client:
        assert (await client.post("/ticks", json=TICK)).status_code == 404
        assert (await client.post("/tick", json=TICK)).status_code == 404
        for path in ("/healthy", "/actuator/health", "/actuator/metrics"):
            assert (await client.get(path)).status_code == 404
        await client.put("/v1/rooms/sale", json={"capacity": 1})
        for path in ("/metrics", "/openapi.json"):
            text = (await client.get(path)).text
            assert [word for word in ("dispatcher", '"/tick', "actuator") if word in text] == []


@pytest.mark.parametrize("settings", [{"routes": {"ticks": {}}}, {"contrib": ["ticks"]}])
async def test_ticks_are_taken_where_they_are_asked_for(
    serve: Serve, settings: dict[str, Any]
) -> None:
    asked = mounts(given(**settings))
    async with serve(mounted=asked, **settings) as running, running.client() as client:
        assert (await client.post("/ticks", json=TICK)).status_code == 202
        assert (await client.get("/healthy")).status_code == 200
        assert (await client.get("/actuator/health")).status_code == 404


async def test_the_dispatchers_figures_are_there_where_rooms_are_configured(serve: Serve) -> None:
    async with serve(mounted=mounts(given(rooms={}))) as running, running.client() as client:
        assert "dispatcher_promotions_total 0.0" in (await client.get("/metrics")).text
        assert (await client.get("/actuator/health")).json()["threadPoolActive"] == 0
        assert (await client.post("/ticks", json=TICK)).status_code == 404
