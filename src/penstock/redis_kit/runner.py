"""The scripts: read once, called by their hash, one call for as many partitions as one may take.

Every script takes *groups*, one a partition: keys of its own, a plan, arguments of its own. On a
single server many groups share a call; in a cluster each partition is a call. Every script can be
repeated when its answer was lost, so calls are retried here.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias

import msgspec
from redis import exceptions as vendor

from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.redis_kit.breaker import Breaker
from penstock.redis_kit.connect import Argument, Reply, Server
from penstock.redis_kit.errors import NotWaitedFor, Vendor, is_transient, translate
from penstock.redis_kit.packing import packed_beginning, packed_end

RETRY_WAITS = (0.02, 0.1, 0.25)
"""Seconds before each repetition of a call that could not be made or lost its connection."""
_TRIES = (*RETRY_WAITS, None)
MAX_ARGUMENTS = 30_000
"""Arguments of one call, about: a longer one would hold up the server."""
MAX_GROUPS = 64
"""Partitions of one call: a longer one would hold up the server."""

SHARED = {
    "claim": ("grant",),
    "claim_keyed": ("line", "turns", "grant"),
    "mend": ("line", "turns"),
    "policy_account": ("policy_common", "policy_kept"),
    "policy_keyed": ("policy_common", "policy_kept"),
    "policy_shared": ("policy_common", "policy_places"),
    "put": ("line", "turns"),
    "reap": ("line", "turns"),
    "settle": ("line", "turns"),
}
"""What some scripts have in common besides record.lua."""
ALONE = frozenset({"put_one"})
"""Scripts that share nothing: what is never called would be made anew with every call."""

Plan: TypeAlias = list[Any]
"""A group's own part of ARGV[1]: numbers, texts, `raw` bytes and lists of them."""
_encoder = msgspec.msgpack.Encoder()


def raw(value: bytes) -> msgspec.Raw:
    """Bytes in a plan: Redis's own msgpack knows texts of any bytes, but not the type for bytes."""
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
    """What a script is to do in one partition."""

    partition: int
    keys: Sequence[bytes]
    plan: Sequence[Any] = ()
    """What follows the group's offsets."""
    arguments: Sequence[bytes] | None = None
    """None: the script's groups have no arguments of their own, and no offset of them."""


class Script(NamedTuple):
    name: str
    source: bytes
    sha: str


class Prepared(NamedTuple):
    """A call of a script that takes no groups, all but its last arguments."""

    partition: int
    keys: Sequence[bytes]
    arguments: Sequence[Argument]
    """Those that are always the same."""
    script: Script
    packed: bytes
    """All of that, as it is written."""
    breaker: Breaker


@lru_cache(maxsize=64)
def load(name: str) -> Script:
    """`lua/<name>.lua` with what all scripts share before it."""
    folder = files("penstock.stores.redis") / "lua"
    parts = (name,) if name in ALONE else ("record", *_parts_of(name), name)
    source = b"\n".join((folder / f"{part}.lua").read_bytes() for part in parts)
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest())


def _parts_of(name: str) -> tuple[str, ...]:
    return SHARED.get(name, ("policy_common",) if name.startswith("policy_") else ())


class Runner:
    """Calls scripts; raises only our errors."""

    def __init__(
        self,
        server: Server,
        name: str,
        wait: Sequence[Argument] = (),
        *,
        scripts: Callable[[str], Script] = load,
    ) -> None:
        self._server = server
        self._name = name
        self._wait = wait
        self._load = scripts
        self._breakers: dict[int, Breaker] = {}

    async def run(
        self,
        name: str,
        groups: Sequence[Group],
        common: Sequence[Argument] = (),
        *,
        writes: bool = True,
    ) -> list[Reply]:
        """The answers of all groups, in their order; raises when one could not be had."""
        replies = await self.try_run(name, groups, common, writes=writes)
        for reply in replies:
            if isinstance(reply, PenstockError):
                raise reply
        return replies

    async def try_run(
        self,
        name: str,
        groups: Sequence[Group],
        common: Sequence[Argument] = (),
        *,
        writes: bool = True,
    ) -> list[Reply]:
        """The same, with the error itself in the place of an answer that could not be had."""
        parts = self._split(groups)
        if len(parts) == 1:
            return await self._part(name, parts[0], common, writes)
        answers = await asyncio.gather(*(self._part(name, part, common, writes) for part in parts))
        return [reply for part in answers for reply in part]

    async def single(
        self, name: str, group: Group, common: Sequence[Argument] = (), *, writes: bool = True
    ) -> Reply:
        return (await self.run(name, [group], common, writes=writes))[0]

    def prepare(
        self, name: str, partition: int, keys: Sequence[bytes], *arguments: Argument
    ) -> Prepared:
        """A call to be made again and again, with four more arguments, others every time."""
        script = self._load(name)
        beginning = packed_beginning(("EVALSHA", script.sha, len(keys), *keys, *arguments))
        breaker = self._breaker(partition)
        return Prepared(partition, keys, arguments, script, beginning, breaker)

    async def direct(
        self, call: Prepared, one: bytes, two: bytes, three: bytes, four: bytes
    ) -> Reply:
        """The answer to one call of it; the shortest way while nothing is in the way."""
        failed: Exception | None = None
        breaker = call.breaker
        if breaker.is_closed and not self._wait:
            asked = self._server.quick(call.packed + packed_end(one, two, three, four))
            if asked is not None:
                try:
                    reply = await asked
                except vendor.NoScriptError:
                    pass  # as long as nobody has said it
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

    async def call(self, partition: int, *command: Argument) -> Reply:
        """A plain command, with the same care."""
        return await self._guard(partition, command, b"")

    async def each(self, *command: Argument) -> dict[str, Reply]:
        """A plain command on every primary."""
        try:
            return await self._server.each(*command)
        except Vendor as exc:
            raise self._failed(exc, self._breaker(0)) from exc

    async def server_time(self) -> float:
        """Epoch milliseconds by the slowest primary's clock."""
        times = (await self.each("TIME")).values()
        return min(int(seconds) * 1000 + int(micros) / 1000 for seconds, micros in times)

    async def configured(self, setting: str) -> dict[str, str]:
        """A server's setting by node; left out where the server does not tell."""
        try:
            found = await self._server.each("CONFIG GET", setting)
        except vendor.ResponseError:  # managed servers often forbid CONFIG
            return {}
        except Vendor as exc:
            raise self._failed(exc, self._breaker(0)) from exc
        return {node: str(reply.get(setting, "?")) for node, reply in found.items()}

    def _split(self, groups: Sequence[Group]) -> list[Sequence[Group]]:
        if self._server.cluster:
            return [[group] for group in groups]
        parts: list[list[Group]] = []
        size = 0
        for group in groups:
            length = len(group.keys) + len(group.arguments or ())
            if not parts or size + length > MAX_ARGUMENTS or len(parts[-1]) >= MAX_GROUPS:
                parts.append([])
                size = 0
            parts[-1].append(group)
            size += length
        return list(parts)

    async def _part(
        self, name: str, groups: Sequence[Group], common: Sequence[Argument], writes: bool
    ) -> list[Reply]:
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
        script = self._load(name)
        command = (
            "EVALSHA",
            script.sha,
            len(keys),
            *keys,
            _encoder.encode(plans),
            *common,
            *arguments,
        )
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
        failed: Exception | None = None,
    ) -> Reply:
        """Call, again if that is worth it; tell the breaker; raise our errors.

        `failed`: how a first try has, if there was one.
        """
        breaker = self._breaker(partition)
        if (wait := breaker.wait()) > 0:
            raise StoreUnavailable(breaker.reason, retry_after=wait)
        for pause in _TRIES:
            try:
                if failed is not None:
                    raise failed
                reply = await self._send(command, key, script, durable=durable)
            except Vendor as exc:
                failed = None
                if pause is None or not is_transient(exc):
                    raise self._failed(exc, breaker) from exc
                await self._recover(exc)
                await asyncio.sleep(pause)
            else:
                breaker.succeeded()
                return reply
        raise AssertionError("the last try returns or raises")

    async def _send(
        self, command: Sequence[Argument], key: bytes, script: Script | None, *, durable: bool
    ) -> Reply:
        try:
            return await self._once(command, key, durable=durable)
        except vendor.NoScriptError:
            if script is None:
                raise
            # A server that was restarted, flushed or took over: hand it the source this once.
            again = ("EVAL", script.source, *command[2:])
            return await self._once(again, key, durable=durable)

    async def _once(self, command: Sequence[Argument], key: bytes, *, durable: bool) -> Reply:
        if not durable or not self._wait:
            return await self._server.call(*command)
        # A server from 7.2 on waits for the last write of this very connection. A command that
        # finds all done (a put repeated because the wait failed) writes nothing, so we do.
        mark = ("SET", _write_mark(key), b"1")
        reply, _, waited = await self._server.in_a_row(key, command, mark, self._wait)
        _check_waited(self._wait, waited)
        return reply

    async def _recover(self, exc: Exception) -> None:
        """Connections to a server that is a replica now are of no use."""
        if isinstance(exc, vendor.ReadOnlyError | vendor.AskError | vendor.TryAgainError):
            try:
                await self._server.reconnect()
            except Vendor as again:
                raise self._failed(again, self._breaker(0)) from again

    def _failed(self, exc: Exception, breaker: Breaker) -> PenstockError:
        """The error to raise from `exc`, which those who are not let through are told too."""
        error = translate(exc, self._name, breaker.failed())
        breaker.reason = error.message
        return error

    def _breaker(self, partition: int) -> Breaker:
        # In a cluster partitions live on nodes that fail one by one.
        number = partition if self._server.cluster else 0
        breaker = self._breakers.get(number)
        if breaker is None:
            breaker = self._breakers[number] = Breaker()
        return breaker


def _write_mark(key: bytes) -> bytes:
    """A key in the same slot as this one, for a write that says nothing."""
    tag, brace, _ = key.partition(b"}")
    return tag + b"}:w" if brace else b"{" + key + b"}:w"


def _check_waited(wait: Sequence[Argument], waited: Reply) -> None:
    """WAIT answers how many replicas have it, WAITAOF also whether the disk does."""
    if wait[0] == "WAIT":
        if int(waited) < int(wait[1]):
            wanted, millis = map(int, wait[1:])
            raise NotWaitedFor(f"only {waited} of {wanted} replicas have it after {millis} ms")
        return
    local, replicas = int(waited[0]), int(waited[1])
    if local < int(wait[1]) or replicas < int(wait[2]):
        raise NotWaitedFor(f"the write is not on enough disks after {int(wait[3])} ms")
