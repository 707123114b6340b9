"""What is shipped for Prometheus and Grafana uses only metrics that a running server has."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import yaml  # type: ignore[import-untyped] # no stubs in the environment
from prometheus_client.parser import text_string_to_metric_families

from penstock.api.http.server import HttpServer
from penstock.contrib import mounts
from penstock.flow.worker import Worker
from penstock.model.policy import policy_from
from penstock.settings import ApiSettings, Settings
from penstock.wiring import open_parts, open_rooms, open_worker

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCS = Path(__file__).parents[2] / "docs"
PROMETHEUS_OWN = {"up"}
WORDS = {"and", "or", "unless", "on", "ignoring", "group_left", "group_right", "bool", "offset"}
_LABELS = re.compile(r"\{[^}]*\}|\b(?:by|without|on|ignoring)\s*\([^)]*\)|\[[^\]]*\]|\"[^\"]*\"")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\s*\()(?![a-zA-Z0-9_:])")


def metrics_of(expression: str) -> set[str]:
    """The metrics a PromQL expression reads."""
    return set(_NAME.findall(_LABELS.sub(" ", expression))) - WORDS


def test_metric_names_are_found_in_expressions() -> None:
    expression = 'sum by (route, le) (rate(a_total{x="b_c",y=~"d"}[5m])) / on (e) f > 1 and g == 0'
    assert metrics_of(expression) == {"a_total", "f", "g"}


def expressions(value: object) -> Iterator[str]:
    """Every `expr` of a dashboard or of alert rules, and what its variables ask for."""
    if isinstance(value, list):
        for item in value:
            yield from expressions(item)
    if isinstance(value, dict):
        for name, item in value.items():
            if name == "expr":
                yield item
            elif name == "query" and isinstance(item, str) and item.startswith("label_values("):
                yield item.removeprefix("label_values(").rpartition(",")[0]
            else:
                yield from expressions(item)


@pytest.fixture
async def live() -> AsyncIterator[str]:
    """The metrics of a server that did a bit of everything."""
    settings = Settings(
        store="sqlite://",
        api=ApiSettings(http="127.0.0.1:0"),
        contrib=("dispatcher",),
        routes={"nowhere": {"sink": "http://127.0.0.1:9/", "backoff": "1s..1s"}},  # type: ignore[dict-item] # as TOML has it
    )
    async with (
        open_parts(settings) as parts,
        open_rooms(parts) as rooms,
        open_worker(parts) as worker,
        HttpServer(parts, worker, rooms=rooms, mounts=mounts(settings)) as server,
        httpx.AsyncClient(base_url=server.url, timeout=300) as client,
    ):
        assert parts.policies is not None
        cap = {"kind": "cap", "scope": ["key"], "limit": 1, "window": "1h"}
        await parts.policies.put({"one": policy_from(cap)})
        for route in ("default", "nowhere"):
            for _ in range(2):
                answer = await client.post(
                    "/v1/messages", json={"route": route, "key": route, "delay": 0}
                )
                assert answer.status_code == 201
        await client.put("/v1/rooms/sale", json={"capacity": 1})
        await client.post("/v1/rooms/sale/join", json={"user": "ann"})
        async with running(worker):
            for _ in range(1_000):
                if parts.observer.total("delivered") and parts.observer.total("retry"):
                    break
                await client.get("/healthz")
        parts.observer.count("recovered", "default")
        assert parts.observer.total("retry"), "nobody listens there, so that it is tried again"
        yield (await client.get("/metrics")).text


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[None]:
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await task


def names(text: str) -> set[str]:
    return {
        sample.name for family in text_string_to_metric_families(text) for sample in family.samples
    }


async def test_dashboards_and_alerts_use_only_metrics_that_exist(live: str) -> None:
    known = names(live) | PROMETHEUS_OWN
    dashboard = json.loads((DEPLOY / "grafana/penstock.json").read_text())
    rules = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())
    asked = [*expressions(dashboard), *expressions(rules)]
    assert len(asked) > 25
    for expression in asked:
        found = metrics_of(expression)
        assert found, expression
        assert found <= known, f"{expression}: no such metric: {found - known}"


async def test_pages_of_the_docs_name_only_metrics_that_exist(live: str) -> None:
    known = names(live) | {family.name for family in text_string_to_metric_families(live)}
    for page in DOCS.rglob("*.md"):
        named = set(re.findall(r"`((?:penstock|dispatcher)_[a-z_]+)`", page.read_text()))
        assert named <= known, f"{page.name}: no such metric: {named - known}"


async def test_the_table_of_metrics_is_complete(live: str) -> None:
    page = (DOCS / "reference/metrics.md").read_text()
    told = set(re.findall(r"^\| `((?:penstock|dispatcher)_[a-z_]+)", page, re.MULTILINE))
    served = {
        family.name if family.type not in {"counter", "info"} else f"{family.name}_{ending}"
        for family in text_string_to_metric_families(live)
        for ending in ("total" if family.type == "counter" else "info",)
        if family.name.startswith(("penstock_", "dispatcher_"))
    }
    assert told == served
