"""APScheduler 3 on its SQLAlchemy job store: threads; a late job runs, several missed ones once."""

import sys
import time

import side
from apscheduler.events import EVENT_JOB_EXECUTED
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger

scheduler = BackgroundScheduler(
    jobstores={"default": SQLAlchemyJobStore(url=side.URL)}, timezone="UTC"
)


def fire() -> None:
    """What ran, and for which moment, is only told to listeners."""


def told(event: object) -> None:
    side.record(f"{event.job_id} {round(event.scheduled_run_time.timestamp() * 1000)}")


if sys.argv[-1] == "put":
    scheduler.start(paused=True)
    trigger = CronTrigger.from_crontab("* * * * *", timezone="UTC")
    how = {"misfire_grace_time": None, "coalesce": True, "replace_existing": True}
    for rule in range(side.RULES):
        scheduler.add_job(fire, trigger, id=str(rule), **how)
    scheduler.shutdown()
else:
    scheduler.add_listener(told, EVENT_JOB_EXECUTED)
    scheduler.start()
    while True:
        time.sleep(3600)
