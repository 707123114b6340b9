"""Sync committed transactions to the disk without blocking the loop.

A commit with `synchronous=FULL` waits for the disk: half a millisecond mostly, fifty now and then,
and the loop waits with it. Every message that comes due in that time is late. So writes that no
caller waits for, and writes made while other messages are due, only go to the log, where they
survive a kill, and a thread syncs the log: at once for waiting callers, soon for the others. Not at
once for all, because a log under constant syncing is slower to write to, and a waiting caller would
also have to wait for the sync in progress.
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

SOON = 0.02
"""Seconds until a write without a waiting caller is synced, unless another sync covers it first."""

Told: TypeAlias = Callable[[BaseException | None], None]
_sync = getattr(os, "fdatasync", os.fsync)  # as SQLite itself does where fdatasync exists


class Disk:
    """Syncs the log of one database. One call at a time: the next covers everything written
    since.
    """

    def __init__(self, path: Path) -> None:
        self.on_failure: Callable[[BaseException], None] = _log_failure
        """Called once when a sync has failed; no other sync follows."""
        self._log = f"{path}-wal"
        self._fd: int | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-sqlite-disk")
        self._running: asyncio.Future[None] | None = None
        self._asked: list[Told] = []
        self._untold = False
        """True if a committed transaction is not synced and no caller waits for it."""
        self._timer: asyncio.TimerHandle | None = None
        self._failed: BaseException | None = None

    def tell(self, callback: Told | None = None) -> None:
        """Sync everything committed so far at once, and call back when it is synced or has failed.

        Without a callback: sync soon.
        """
        if self._failed is not None:
            if callback is not None:
                callback(self._failed)
            return
        if callback is None:
            self._untold = True
        else:
            self._asked.append(callback)
        if self._running is None:
            self._go_on()

    async def close(self) -> None:
        """Finish the requested syncs."""
        while self._running is not None or self._timer is not None:
            if self._running is None:
                self._start()
            else:
                await asyncio.wait([self._running])
        self._thread.shutdown()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _go_on(self) -> None:
        if self._asked:
            self._start()
        elif self._untold and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SOON, self._start)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        asked, self._asked = self._asked, []
        try:
            self._open()
        except OSError as exc:  # out of file descriptors, say: not synced, and not failed either
            log.warning("the write-ahead log cannot be opened, to be synced later: %s", exc)
            self._untold = True
            for callback in asked:
                callback(exc)
            return
        self._untold = False
        self._running = asyncio.get_running_loop().run_in_executor(self._thread, self._write)
        self._running.add_done_callback(partial(self._written, asked))

    def _open(self) -> None:
        if self._fd is None:
            self._fd = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)

    def _write(self) -> None:
        if self._fd is not None:
            _sync(self._fd)

    def _written(self, asked: list[Told], done: asyncio.Future[None]) -> None:
        self._running = None
        error = done.exception()
        if error is None:
            self._go_on()
        else:
            self._failed = error
            asked += self._asked
            self._asked = []
            self.on_failure(error)
        for callback in asked:
            callback(error)


def _log_failure(error: BaseException) -> None:
    log.critical("fsync of the write-ahead log failed: %s", error)
