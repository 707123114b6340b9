"""`penstock serve` in a process of its own, to be killed and started again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from systems.servers.ports import free_port

READY_SECONDS = 300


class PenstockProcess:
    """One `penstock …` process over a folder with its own penstock.toml."""

    def __init__(
        self,
        folder: Path,
        config: str,
        *,
        command: str = "serve",
        grpc: str = "off",
        words: Sequence[str] = (),
    ) -> None:
        """`words` come after the command."""
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"{command}-{self.port}.log"
        self._command = command
        self._config = folder / f"{command}-{self.port}.toml"
        self._config.write_text(config.replace("@PORT@", str(self.port)))
        self._grpc = grpc
        self._words = words
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self, env: Mapping[str, str] | None = None) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "penstock", self._command, *self._words),
                *("--config", str(self._config)),
                cwd=self.folder,
                # Not on a standard port, unless the test says where.
                env={**os.environ, "PENSTOCK_API__GRPC": self._grpc, **(env or {})},
                stdout=log,
                stderr=log,
            )
        if self._command != "worker":
            await self._ready()

    async def _ready(self) -> None:
        async with httpx.AsyncClient() as client:
            for _ in range(READY_SECONDS * 20):
                assert self._process is not None
                if self._process.returncode is not None:
                    break
                try:
                    if (await client.get(f"{self.url}/healthz")).status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.05)
        raise AssertionError(f"penstock did not start:\n{self.log.read_text()[-2000:]}")

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def pause(self) -> None:
        """As if its machine hung: it does nothing, and its connections stay."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    async def kill(self) -> None:
        """As if the power of this process were cut."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """Ask it to stop, and its exit code."""
        return await self._end(signal.SIGTERM)

    async def ended(self) -> int:
        """Wait until it ends by itself; its exit code."""
        assert self._process is not None
        return await asyncio.wait_for(self._process.wait(), READY_SECONDS * 4)

    async def _end(self, how: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.returncode is None:
            process.send_signal(how)
        return await process.wait()


@asynccontextmanager
async def run_penstock(
    folder: Path,
    config: str,
    *,
    command: str = "serve",
    grpc: str = "off",
    env: Mapping[str, str] | None = None,
    words: Sequence[str] = (),
) -> AsyncIterator[PenstockProcess]:
    """Start it, and end it."""
    process = PenstockProcess(folder, config, command=command, grpc=grpc, words=words)
    await process.start(env)
    try:
        yield process
    finally:
        await process.kill()
