"""Keep the write-ahead log short without blocking the loop.

A thread copies most of it into the database on a connection of its own (PASSIVE: it blocks no
writer). Under constant writing that alone never lets the log start over, because there is always
another frame; so when the log has grown, the short tail is copied inline between two transactions.

One process at a time: SQLite before 3.51.3 may corrupt the file when a log that was just copied as
a whole is copied a second time while another connection commits (its "WAL-reset bug"). So the
copying process has a lock on a file beside the database, and a log that was copied as a whole is
left to the next commit, which starts it over.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.stores.sqlite.errors import is_failed_fsync

log = logging.getLogger("penstock.sqlite")

CHANGES = 100_000
"""Changed rows after which the thread copies the log."""
LOOK = 32
"""Changed rows of any size from one look at the length of the log to the next."""
GROWTH = 32 * 1024 * 1024
"""Or bytes by which the log's file has grown (large payloads)."""
START_OVER = 2_048
"""Frames in the log from which on the tail is copied inline, so that it starts over."""
SHORT_TAIL = 512
"""Frames worth copying inline; with more than these left the thread goes on first …"""
ROUNDS = 4
"""… at most so many times: a thread that cannot keep up must not let the log grow."""

CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"


class CheckpointLock:
    """The lock of the one process that copies the log of a file; it ends with the process."""

    def __init__(self, path: Path) -> None:
        self._path = f"{path}-lock"
        self._fd: int | None = None

    def take(self) -> bool:
        """Take the lock without waiting; False while another process has it."""
        try:
            if self._fd is None:
                flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
                self._fd = os.open(self._path, flags, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as exc:  # out of file descriptors, say
            log.warning("the write-ahead log is not copied now: %s: %s", self._path, exc)
            return False
        return True

    def release(self) -> None:
        if self._fd is not None:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class Checkpoints:
    """Watches one store's log. `after_commit` is called on the loop, after transactions."""

    def __init__(
        self,
        main: sqlite3.Connection,
        path: Path,
        connect: Callable[[], sqlite3.Connection],
        between: Callable[[Callable[[], None]], None],
        sync_failed: Callable[[BaseException], None],
    ) -> None:
        self._main = main
        self._log_file = Path(f"{path}-wal")
        self._connect = connect
        self._between = between
        self._sync_failed = sync_failed
        self._lock = CheckpointLock(path)
        self._own: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-sqlite-checkpoint")
        self._running: asyncio.Future[tuple[int, int]] | None = None
        self._seen_changes = main.total_changes
        self.look_from = 0
        """Rows changed by the connection from which on `after_commit` has something to look at."""
        self._seen_size = 0
        self._rounds = 0
        self._tail_due = False
        self._closing = False

    def after_commit(self) -> None:
        if self._closing or self._running or self._tail_due:
            return
        total = self._main.total_changes
        left = CHANGES - (total - self._seen_changes)
        if left > 0 and not self._has_grown():
            self.look_from = total + min(left, LOOK)
        elif self._lock.take():
            self._start()

    async def close(self) -> None:
        """Wait for the thread; SQLite itself copies the rest when the last connection closes."""
        self._closing = True
        if self._running is not None:
            await asyncio.wait([self._running])
        self._thread.shutdown()
        self._lock.close()
        if self._own is not None:
            self._own.close()

    def _has_grown(self) -> bool:
        try:
            size = self._log_file.stat().st_size
        except OSError:  # not there yet
            return False
        self._seen_size = min(self._seen_size, size)
        return size - self._seen_size >= GROWTH

    def _start(self) -> None:
        self._seen_changes = self._main.total_changes
        self._seen_size = self._log_file.stat().st_size if self._log_file.exists() else 0
        self._running = asyncio.get_running_loop().run_in_executor(self._thread, self._bulk)
        self._running.add_done_callback(self._bulk_done)

    def _bulk(self) -> tuple[int, int]:
        """(frames in the log, frames of them not copied yet)."""
        if self._own is None:
            self._own = self._connect()
        _, frames, copied = self._own.execute(CHECKPOINT).fetchone()
        return frames, frames - copied

    def _bulk_done(self, done: asyncio.Future[tuple[int, int]]) -> None:
        self._running = None
        error = done.exception()
        if error is not None:
            self._failed(error)
            return
        frames, left = done.result()
        # Frames written while the thread copied are in neither number.
        whole = left == 0 and self._main.total_changes == self._seen_changes
        if frames < START_OVER or whole or self._closing:
            self._end()
            return
        self._rounds += 1
        if left > SHORT_TAIL and self._rounds < ROUNDS:
            self._start()
        else:
            self._tail_due = True
            self._between(self._tail)

    def _tail(self) -> None:
        try:
            self._main.execute(CHECKPOINT).fetchone()
        except sqlite3.Error as exc:
            self._failed(exc)
        else:
            self._end()

    def _failed(self, error: BaseException) -> None:
        self._end()
        if is_failed_fsync(error):
            self._sync_failed(error)
        else:
            log.warning("the write-ahead log could not be copied: %s", error)

    def _end(self) -> None:
        self._rounds = 0
        self._tail_due = False
        self._lock.release()
