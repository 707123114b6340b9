"""One long NDJSON batch over HTTP, against a bare executemany of the same rows."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx

from bench.report import Report
from bench.run_http import BODY, server
from bench.sqlite_limits import bare, executemany, folder
from bench.workload import messages

NUMBER = 200_000
ROUNDS = 3
CHUNK = 1_000


def _lines() -> Iterator[bytes]:
    piece = (BODY + b"\n") * CHUNK
    for _ in range(NUMBER // CHUNK):
        yield piece


def _post(port: int) -> float:
    url = f"http://127.0.0.1:{port}/v1/messages/batch"
    start = time.perf_counter()
    with httpx.stream(
        "POST",
        url,
        content=_lines(),
        headers={"content-type": "application/x-ndjson"},
        timeout=120,
    ) as answer:
        outcomes = sum(piece.count(b"\n") for piece in answer.iter_raw())
    if (answer.status_code, outcomes) != (200, NUMBER):
        raise RuntimeError(f"{answer.status_code} with {outcomes} outcomes")
    return NUMBER / (time.perf_counter() - start)


def main() -> None:
    report = Report("ndjson", "one NDJSON batch of 200,000 messages over HTTP, SQLite file, FULL")
    bares, ours = [], []
    for _ in range(ROUNDS):
        with folder() as at:
            connection = bare(at / "bare.db")
            bares.append(executemany(connection, messages(NUMBER // 2)))
            connection.close()
        with folder() as at, server("penstock", at) as port:
            ours.append(_post(port))
    report.add("bare executemany", max(bares), "messages/s")
    report.add(
        "NDJSON batch",
        max(ours),
        "messages/s",
        baseline=max(bares),
        against="bare executemany",
        aim=">= 0.31 x (50,000 where bare does 160,000)",
    )
    report.finish()
