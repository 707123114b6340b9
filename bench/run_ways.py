"""POST /v1/messages as clients send it: lengths and chunks, in one piece and in several.

Every way is measured in turns with the same body sent with a length in one piece, on one server;
a way is on the fast path if it reaches nine tenths of that.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict

import psutil

from bench.load import PIECE, load
from bench.report import Report
from bench.run_http import BODY, CONNECTIONS, process
from bench.sqlite_limits import folder

SECONDS = float(os.environ.get("BENCH_SECONDS", "2"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
HOST = "Host: 127.0.0.1"
JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"
LENGTH = f"Content-Length: {len(BODY)}"
CHUNK, END = b"%x\r\n%b\r\n" % (len(BODY), BODY), b"0\r\n\r\n"


def head(*lines: str) -> bytes:
    return "\r\n".join(("POST /v1/messages HTTP/1.1", *lines, "", "")).encode()


PLAIN = "a length, in one piece"
GO = head(HOST, "User-Agent: Go-http-client/1.1", LENGTH, JSON, "Accept-Encoding: gzip")
GO_CHUNKED = head(HOST, "User-Agent: Go-http-client/1.1", CHUNKED, JSON, "Accept-Encoding: gzip")
JAVA = head(LENGTH, HOST, "User-Agent: Java-http-client/21", JSON)
JAVA_CHUNKED = head(CHUNKED, HOST, "User-Agent: Java-http-client/21", JSON)
NODE = head(JSON, HOST, "Connection: keep-alive", LENGTH)
NODE_CHUNKED = head("content-type: application/json; charset=utf-8", HOST, CHUNKED)
CURL = head(HOST, "User-Agent: curl/8.5.0", "Accept: */*", JSON, LENGTH)
PYTHON = head("Host: 127.0.0.1:8700", "Accept-Encoding: identity", LENGTH, JSON)
WAYS = {
    PLAIN: head(HOST, JSON, LENGTH) + BODY,
    "Go, a length": GO + BODY,
    "Go, chunked": GO_CHUNKED + CHUNK + END,
    "Go, chunked, its end apart": GO_CHUNKED + CHUNK + PIECE + END,
    "Java, a length, head and body apart": JAVA + PIECE + BODY,
    "Java, chunked, head and body apart": JAVA_CHUNKED + PIECE + CHUNK + END,
    "Node, a length": NODE + BODY,
    "Node, chunked, its end apart": NODE_CHUNKED + CHUNK + PIECE + END,
    "curl": CURL + BODY,
    "http.client, head and body apart": PYTHON + PIECE + BODY,
}


def main() -> None:
    report = Report("ways", f"POST /v1/messages as clients send it, {CONNECTIONS} connections")
    rates: dict[str, float] = defaultdict(float)
    cpus: dict[str, float] = defaultdict(lambda: float("inf"))
    with folder() as at, process("penstock", at) as (port, pid):
        for turn in range(ROUNDS):
            for way, request in WAYS.items():
                before = psutil.Process(pid).cpu_times()
                done = load(port, request, connections=CONNECTIONS, seconds=SECONDS)
                after = psutil.Process(pid).cpu_times()
                spent = after.user + after.system - before.user - before.system
                rates[way] = max(rates[way], done["rate"])
                cpus[way] = min(cpus[way], spent / done["ok"] * 1e6)
                time.sleep(0.1)
            print(f"  round {turn + 1} of {ROUNDS}", flush=True)
    report.add(PLAIN, rates[PLAIN], "requests/s")
    report.add(f"{PLAIN}: the server", cpus[PLAIN], "µs of CPU")
    for way in list(WAYS)[1:]:
        base, aim = rates[PLAIN], ">= 0.9 x"
        report.add(way, rates[way], "requests/s", baseline=base, against=PLAIN, aim=aim)
        base, aim = cpus[PLAIN], "<= 1.1 x"
        report.add(
            f"{way}: the server", cpus[way], "µs of CPU", baseline=base, against=PLAIN, aim=aim
        )
    report.finish()


if __name__ == "__main__":
    main()
