"""Celery: one beat and one worker with two children; rules are in its settings."""

import os
import subprocess
import sys
import time
from pathlib import Path

import side
from celery import Celery
from celery.schedules import crontab

app = Celery("celery_recurring", broker=side.URL)
app.conf.update(
    task_ignore_result=True,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    timezone="UTC",
    beat_schedule={
        str(rule): {"task": "fire", "schedule": crontab(), "args": (rule,)}
        for rule in range(side.RULES)
    },
)


@app.task(name="fire")
def fire(rule: int) -> None:
    """A task is not told its moment: here, it is the minute that has begun."""
    side.record(f"{rule} {int(time.time()) // 60 * 60_000}")


if __name__ == "__main__" and sys.argv[-1] == "run":
    command = [sys.executable, "-m", "celery", "-A", "celery_recurring"]
    stored = Path.cwd() / f"beat-{os.environ['PEERS_PLACE']}"
    here = Path(__file__).parent
    subprocess.Popen([*command, "beat", "-s", str(stored), "--pidfile="], cwd=here)
    worker = [*command, "worker", "-c", "2", "-n", f"w{os.getpid()}@%h"]
    subprocess.run(worker, cwd=here, check=True)
