"""APScheduler 4 on its SQLAlchemy data store: a late job runs, several missed ones once."""

import asyncio
import sys

import side
from apscheduler import AsyncScheduler, CoalescePolicy, current_job
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.triggers.cron import CronTrigger
from sqlalchemy.ext.asyncio import create_async_engine


async def fire() -> None:
    job = current_job.get()
    side.record(f"{job.schedule_id} {round(job.scheduled_fire_time.timestamp() * 1000)}")


async def main() -> None:
    engine = create_async_engine(side.URL.replace("sqlite:", "sqlite+aiosqlite:"))
    async with AsyncScheduler(SQLAlchemyDataStore(engine)) as scheduler:
        if sys.argv[-1] == "run":
            await scheduler.run_until_stopped()
        for rule in range(side.RULES):
            await scheduler.add_schedule(
                fire,
                CronTrigger.from_crontab("* * * * *", timezone="UTC"),
                id=str(rule),
                coalesce=CoalescePolicy.latest,
                misfire_grace_time=None,
            )


asyncio.run(main())
