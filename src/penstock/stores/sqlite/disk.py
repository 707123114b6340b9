"""Tell the disk what was committed, without waiting for it on the loop.

A commit with `synchronous=FULL` waits for the disk: half a millisecond mostly, fifty now and then,
and the loop waits with it. Whatever comes due meanwhile is late by that. So what nobody waits for,
and what somebody does while other messages are due, is only written to the log, where it survives
a kill, and a thread syncs the log at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeAlias

log = logging.getLogger("penstock.sqlite")

Told: TypeAlias = Callable[[BaseException | None], None]
_sync = getattr(os, "fdatasync", os.fsync)  # as SQLite itself does where there is the first


class Disk:
    """Syncs the log of one database. One call at a time: the next covers all that came since."""

    def __init__(self, path: Path) -> None:
        self._log = f"{path}-wal"
        self._fd: int | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-sqlite-disk")
        self._running: asyncio.Future[None] | None = None
        self._wanted = False
        self._asked: list[Told] = []

    def tell(self, told: Told | None = None) -> None:
        """Begin with what is committed by now; call back when it is on the disk, or cannot be."""
        if told is not None:
            self._asked.append(told)
        self._wanted = True
        if self._running is None:
            self._start()

    async def close(self) -> None:
        """Finish what was asked for."""
        while self._running is not None:
            await asyncio.wait([self._running])
        self._thread.shutdown()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _start(self) -> None:
        self._wanted = False
        asked, self._asked = self._asked, []
        self._running = asyncio.get_running_loop().run_in_executor(self._thread, self._write)
        self._running.add_done_callback(partial(self._written, asked))

    def _write(self) -> None:
        if self._fd is None:
            self._fd = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        _sync(self._fd)

    def _written(self, asked: list[Told], done: asyncio.Future[None]) -> None:
        self._running = None
        error = done.exception()
        if error is not None:
            log.warning("the disk did not take the write-ahead log: %s", error)
        if self._wanted:
            self._start()
        for told in asked:
            told(error)
