"""`/actuator/*`: the Dispatcher's monitoring calls, mounted beside the core's verbs."""

from __future__ import annotations

from urllib.parse import unquote

from penstock.api.http.answer import Answer, json_answer
from penstock.api.http.request import Request
from penstock.api.verbs import Mount, Verb
from penstock.contrib.dispatcher.actuator import health_of, metric_of, metrics_of
from penstock.contrib.dispatcher.metrics import CONTENT_TYPE, render_rooms

# fmt: off
MOUNT = Mount(
    name="dispatcher",
    verbs=(
        Verb("actuatorHealth", "GET", "/actuator/health", "open",
             "penstock.contrib.dispatcher.http:health",
             "Actuator", "Health, as the Dispatcher reported it",
             answers={200: ("UP", None), 503: ("DOWN", None)}),
        Verb("actuatorMetrics", "GET", "/actuator/metrics", "read",
             "penstock.contrib.dispatcher.http:metrics",
             "Actuator", "Names of the promoter's figures",
             answers={200: ("Names", None)}),
        Verb("actuatorMetric", "GET", "/actuator/metrics/{name}", "read",
             "penstock.contrib.dispatcher.http:metric",
             "Actuator", "One figure",
             answers={200: ("Its values", None)}, failures=(404,)),
        Verb("actuatorPrometheus", "GET", "/actuator/prometheus", "read",
             "penstock.contrib.dispatcher.http:prometheus",
             "Actuator", "The promoter's figures for Prometheus",
             answers={200: ("Text", None)}, media="text/plain"),
    ),
    in_path={"name": {"type": "string", "examples": ["executor.active"]}},
    figures="penstock.contrib.dispatcher.metrics:collectors",
    everywhere=True,
)
# fmt: on


async def health(request: Request) -> Answer:
    api, details = request.api, request.grant.sees_details
    found = await health_of(api.parts.store, api.rooms, details=details)
    return json_answer(found, found.code)


async def metrics(request: Request) -> Answer:
    return json_answer(metrics_of(request.api.rooms))


async def metric(request: Request) -> Answer:
    return json_answer(metric_of(request.api.rooms, unquote(request.raw("name"))))


async def prometheus(request: Request) -> Answer:
    return Answer(200, render_rooms(request.api.rooms), media=CONTENT_TYPE)
