"""Runs scripts by their hash, and plain commands; raises only Penstock's errors.

Scripts of messages and policies take *groups*, one per partition: its keys, a plan, and its
arguments. On a single server many groups share a call; in a cluster each partition is a call. Every
script may be repeated if its answer was lost, so calls are retried here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
from redis import exceptions as vendor

from penstock.model.durations import Durations
from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.redis_kit.breaker import PROMPT, Breaker, Patience
from penstock.redis_kit.connect import (
    Argument,
    Cursors,
    Reply,
    Server,
    packed_beginning,
    packed_end,
)
from penstock.redis_kit.errors import GROUP_EXISTS, NotConfirmed, Vendor, is_transient, translate
from penstock.redis_kit.scripts import Chain, Script

MAX_ARGUMENTS = 30_000
"""Approximate most arguments of one call: a longer one would block the server."""
MAX_GROUPS = 64
"""Most partitions of one call: a longer one would block the server."""

Plan: TypeAlias = list[Any]
"""A group's part of ARGV[1]: numbers, texts, `raw` bytes and lists of them."""
_encoder = msgspec.msgpack.Encoder()


def raw(value: bytes) -> msgspec.Raw:
    """Bytes in a plan, as a msgpack text: Redis's decoder has no type for bytes."""
    length = len(value)
    if length < 32:
        head = bytes((0xA0 | length,))
    elif length < 256:
        head = bytes((0xD9, length))
    elif length < 65_536:
        head = b"\xda" + length.to_bytes(2, "big")
    else:
        head = b"\xdb" + length.to_bytes(4, "big")
    return msgspec.Raw(head + value)


class Group(NamedTuple):
    """One partition's part of a script call."""

    partition: int
    keys: Sequence[bytes]
    plan: Sequence[Any] = ()
    """The group's plan, which follows its offsets."""
    arguments: Sequence[bytes] | None = None
    """The group's arguments; None if the script's groups take none."""


class Step(NamedTuple):
    """A script with its groups: alone, or one of a chain."""

    script: Script
    groups: Sequence[Group]
    common: Sequence[Argument] = ()


class Prepared(NamedTuple):
    """A script call without groups, packed except for its last four arguments."""

    partition: int
    keys: Sequence[bytes]
    arguments: Sequence[Argument]
    """The first arguments, the same in every call."""
    script: Script
    packed: bytes
    """Command, keys and these arguments as the bytes that are sent."""
    breaker: Breaker


class Runner:
    """Calls one server or cluster, with retries, a breaker and durable writes."""

    def __init__(
        self,
        server: Server,
        name: str,
        wait: Sequence[Argument] = (),
        *,
        patience: Patience = PROMPT,
        durations: Durations | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`wait` is the WAIT or WAITAOF that follows every write; `durations` times `execute`."""
        self.server = server
        self.name = name
        self.errors = 0
        """Failed calls, repeated ones included."""
        self.durations = durations
        self._wait = wait
        self._patience = patience
        self._monotonic = monotonic
        self._breakers: dict[int, Breaker] = {}

    @property
    def cluster(self) -> bool:
        return self.server.cluster

    @property
    def seconds(self) -> float:
        """The current time on the clock of `durations`."""
        return self._monotonic()

    @property
    def is_open(self) -> bool:
        """Whether a breaker refuses calls now."""
        return any(breaker.refuses for breaker in self._breakers.values())

    async def run(
        self,
        script: Script,
        groups: Sequence[Group],
        common: Sequence[Argument] = (),
        *,
        writes: bool = True,
    ) -> list[Reply]:
        """The answers of all groups, in order; raises if any group failed."""
        replies = await self.try_run(script, groups, common, writes=writes)
        for reply in replies:
            if isinstance(reply, PenstockError):
                raise reply
        return replies

    async def try_run(
        self,
        script: Script,
        groups: Sequence[Group],
        common: Sequence[Argument] = (),
        *,
        writes: bool = True,
    ) -> list[Reply]:
        """As `run`, but a failed group's error takes the place of its answer."""
        parts = self._split(groups)
        if len(parts) == 1:
            return await self._part(script, parts[0], common, writes)
        calls = (self._part(script, part, common, writes) for part in parts)
        return [reply for part in await asyncio.gather(*calls) for reply in part]

    def chains(self, steps: Sequence[Step]) -> bool:
        """Whether these fit into one call: a single server, and no script that is too long."""
        return (
            not self.cluster
            and sum(_size(group) for step in steps for group in step.groups) <= MAX_ARGUMENTS
            and all(0 < len(step.groups) <= MAX_GROUPS for step in steps)
        )

    async def run_chain(self, chain: Chain, steps: Sequence[Step]) -> list[list[Reply]]:
        """The answers of each step that was run: up to the first with one that is not 0."""
        sizes: list[Plan] = []
        keys: list[bytes] = []
        arguments: list[Argument] = []
        for step in steps:
            own_keys, own = _packed(step.groups, step.common)
            sizes.append([len(own_keys), len(own)])
            keys += own_keys
            arguments += own
        command = ("EVALSHA", chain.sha, len(keys), *keys, _encoder.encode(sizes), *arguments)
        partition = steps[0].groups[0].partition
        replies: list[list[Reply]] = await self._guard(
            partition, command, keys[0], chain, durable=True
        )
        return replies

    async def single(
        self, script: Script, group: Group, common: Sequence[Argument] = (), *, writes: bool = True
    ) -> Reply:
        return (await self.run(script, [group], common, writes=writes))[0]

    async def execute(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[Argument],
        *,
        retry: bool = True,
    ) -> Reply:
        """Run a script without groups; without `retry` it is sent once."""
        begun = self._monotonic()
        command = ("EVALSHA", script.sha, len(keys), *keys, *arguments)
        reply = await self._guard(0, command, keys[0], script, retry=retry)
        if self.durations is not None:
            ended = self._monotonic()
            self.durations.add(ended - begun, ended)
        return reply

    def prepare(
        self, script: Script, partition: int, keys: Sequence[bytes], *arguments: Argument
    ) -> Prepared:
        """Prepare a call that is made repeatedly with four different last arguments."""
        beginning = packed_beginning(("EVALSHA", script.sha, len(keys), *keys, *arguments))
        breaker = self._breaker(partition)
        return Prepared(partition, keys, arguments, script, beginning, breaker)

    async def call_prepared(
        self, call: Prepared, one: bytes, two: bytes, three: bytes, four: bytes
    ) -> Reply:
        """Run a prepared call; falls back to `_guard` if no open connection is free."""
        failed: Exception | None = None
        breaker = call.breaker
        if breaker.is_closed and not self._wait:
            answer = self.server.quick(call.packed + packed_end(one, two, three, four))
            if answer is not None:
                try:
                    reply = await answer
                except vendor.NoScriptError:
                    pass  # `_guard` sends the source
                except Vendor as exc:
                    failed = exc
                else:
                    if breaker.failures:
                        breaker.succeeded()
                    return reply
        script, keys = call.script, call.keys
        command = ("EVALSHA", script.sha, len(keys), *keys, *call.arguments, one, two, three, four)
        return await self._guard(
            call.partition, command, keys[0], script, durable=True, failed=failed
        )

    async def call(self, *command: Argument, partition: int = 0, retry: bool = True) -> Reply:
        """Send a plain command; the breaker of `partition` counts it."""
        return await self._guard(partition, command, b"", retry=retry)

    async def each(self, *command: Argument) -> dict[str, Reply]:
        """Send a plain command to every primary; the answers by the node's name."""
        try:
            return await self.server.each(*command)
        except Vendor as exc:
            raise self._failed(exc, self._breaker(0)) from exc

    async def scan(self, cursors: Cursors, match: str, count: int) -> tuple[list[bytes], Cursors]:
        """One step of a scan of every primary: matching sorted sets, and the next cursors."""
        try:
            return await self.server.scan(cursors, match, count, "zset")
        except Vendor as exc:
            raise self._failed(exc, self._breaker(0)) from exc

    async def server_time(self) -> float:
        """Epoch milliseconds by the clock of the slowest primary."""
        times = (await self.each("TIME")).values()
        return min(int(seconds) * 1000 + int(micros) / 1000 for seconds, micros in times)

    async def configured(self, setting: str) -> dict[str, str]:
        """A server's setting by node; empty if CONFIG is forbidden."""
        try:
            found = await self.server.each("CONFIG GET", setting)
        except vendor.ResponseError:  # managed servers often forbid CONFIG
            return {}
        except Vendor as exc:
            raise self._failed(exc, self._breaker(0)) from exc
        return {node: str(reply.get(setting, "?")) for node, reply in found.items()}

    def _split(self, groups: Sequence[Group]) -> list[Sequence[Group]]:
        """Divide the groups among calls."""
        if self.server.cluster:
            return [[group] for group in groups]
        parts: list[list[Group]] = []
        size = 0
        for group in groups:
            length = _size(group)
            if not parts or size + length > MAX_ARGUMENTS or len(parts[-1]) >= MAX_GROUPS:
                parts.append([])
                size = 0
            parts[-1].append(group)
            size += length
        return list(parts)

    async def _part(
        self, script: Script, groups: Sequence[Group], common: Sequence[Argument], writes: bool
    ) -> list[Reply]:
        """Make one call; if it fails, its error stands once for each group."""
        keys, arguments = _packed(groups, common)
        command = ("EVALSHA", script.sha, len(keys), *keys, *arguments)
        try:
            reply: list[Reply] = await self._guard(
                groups[0].partition, command, keys[0], script, durable=writes
            )
        except PenstockError as exc:
            return [exc] * len(groups)
        return reply

    async def _guard(
        self,
        partition: int,
        command: Sequence[Argument],
        key: bytes,
        script: Script | None = None,
        *,
        durable: bool = False,
        retry: bool = True,
        failed: Exception | None = None,
    ) -> Reply:
        """Send a command, repeat it if that may help, count failures, raise Penstock's errors.

        `failed` is the error of a first try that was made elsewhere.
        """
        breaker = self._breaker(partition)
        if not breaker.is_closed and (wait := breaker.wait()) > 0:
            raise StoreUnavailable(breaker.reason, retry_after=wait)
        patience = self._patience
        for pause in (*(patience.waits if retry else ()), None):
            try:
                if failed is not None:
                    raise failed
                reply = await self._send(command, key, script, durable=durable)
            except Vendor as exc:
                failed = None
                if pause is None or not is_transient(exc, slow=patience.retries_slow):
                    raise self._failed(exc, breaker) from exc
                self.errors += 1
                await self._recover(exc)
                await asyncio.sleep(pause)
            else:
                if breaker.failures:
                    breaker.succeeded()
                return reply
        raise AssertionError("the last try returns or raises")

    async def _send(
        self, command: Sequence[Argument], key: bytes, script: Script | None, *, durable: bool
    ) -> Reply:
        try:
            if not durable or not self._wait:
                return await self.server.call(*command)
            # A server from 7.2 on waits for the last write of this very connection. A command
            # with nothing left to do (a put repeated because the wait failed) writes nothing.
            mark = ("SET", _write_mark(key), b"1")
            reply, _, waited = await self.server.in_a_row(key, command, mark, self._wait)
        except vendor.NoScriptError:
            if script is None:
                raise
            # The server was restarted, flushed or failed over: send the source this once.
            again = ("EVAL", script.source, *command[2:])
            return await self._send(again, key, None, durable=durable)
        _check_waited(self._wait, waited)
        return reply

    async def _recover(self, exc: Exception) -> None:
        """Drop the connections to a server that has become a replica."""
        if isinstance(exc, vendor.ReadOnlyError | vendor.AskError | vendor.TryAgainError):
            try:
                await self.server.reconnect()
            except Vendor as again:
                raise self._failed(again, self._breaker(0)) from again

    def _failed(self, exc: Exception, breaker: Breaker) -> PenstockError:
        """The error to raise for `exc`; the breaker counts it if the server did not answer."""
        self.errors += not str(exc).startswith(GROUP_EXISTS)
        error = translate(exc, self.name)
        if isinstance(error, StoreUnavailable):
            error.retry_after = breaker.failed()
            breaker.reason = error.message
        return error

    def _breaker(self, partition: int) -> Breaker:
        # In a cluster partitions live on nodes that fail independently.
        number = partition if self.server.cluster else 0
        breaker = self._breakers.get(number)
        if breaker is None:
            breaker = self._breakers[number] = Breaker(self._patience, self._monotonic)
        return breaker


def _size(group: Group) -> int:
    return len(group.keys) + len(group.arguments or ())


def _packed(
    groups: Sequence[Group], common: Sequence[Argument]
) -> tuple[list[bytes], list[Argument]]:
    """KEYS and ARGV of a script with these groups."""
    keys: list[bytes] = []
    arguments: list[Argument] = []
    plans: list[Plan] = []
    first = 1 + len(common)
    for group in groups:
        offsets = [len(keys)]
        if group.arguments is not None:
            offsets.append(first + len(arguments))
            arguments += group.arguments
        plans.append([*offsets, *group.plan])
        keys += group.keys
    return keys, [_encoder.encode(plans), *common, *arguments]


def _write_mark(key: bytes) -> bytes:
    """A key in the same slot, for a write that only WAIT needs."""
    tag, brace, _ = key.partition(b"}")
    return tag + b"}:w" if brace else b"{" + key + b"}:w"


def _check_waited(wait: Sequence[Argument], waited: Reply) -> None:
    """Check the answer: WAIT counts replicas, WAITAOF also tells whether the disk has it."""
    if wait[0] == "WAIT":
        if int(waited) < int(wait[1]):
            wanted, millis = map(int, wait[1:])
            raise NotConfirmed(f"{waited} of {wanted} replicas after {millis} ms")
        return
    local, replicas = int(waited[0]), int(waited[1])
    if local < int(wait[1]) or replicas < int(wait[2]):
        raise NotConfirmed(
            f"{local} of {int(wait[1])} disks, {replicas} of {int(wait[2])} replicas"
            f" after {int(wait[3])} ms"
        )
