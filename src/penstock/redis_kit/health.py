"""Checks of a server's version and settings: errors, warnings, and facts for /readyz."""

from __future__ import annotations

import logging

from penstock.model.errors import ConfigError, StoreUnavailable
from penstock.redis_kit.address import Address
from penstock.redis_kit.connect import Argument
from penstock.redis_kit.runner import Runner

log = logging.getLogger("penstock.stores.redis")

OLDEST = (6, 2)
WAITAOF_SINCE = (7, 2)
KEEPS_ALL = "noeviction"
_VOLATILE = "volatile-"
"""Policies that evict only keys with a time to live: never messages, only caps' counters."""


async def inspect(runner: Runner, address: Address) -> None:
    """Raise ConfigError for an unsuitable server; warn of settings that can lose messages."""
    for node, info in (await _met(runner)).items():
        if str(info.get("cluster_enabled", "0")) == "1" and not address.cluster:
            raise ConfigError(
                f"store: {node} is a node of a Redis Cluster: redis+cluster://host:port"
            )
        version = _version(info)
        if version < OLDEST:
            raise ConfigError(f"store: {node} runs Redis {_text(version)}; 6.2 is the oldest")
        if address.options.waitaof and version < WAITAOF_SINCE:
            raise ConfigError(f"store: waitaof needs Redis 7.2, {node} runs {_text(version)}")
        if address.options.waitaof and not _has_aof(info):
            raise ConfigError(f"store: waitaof needs an AOF, {node} has none: appendonly yes")
        _warn_of_eviction(node, info)
        await _warn_of_memory_only(runner, node, info)


async def _met(runner: Runner) -> dict[str, dict[str, object]]:
    """INFO of every server; an error of this first contact hints at mistakes in the URL."""
    try:
        return await runner.each("INFO", "everything")
    except StoreUnavailable as exc:
        if "reset by peer" not in exc.message and "closed by server" not in exc.message:
            raise
        hint = f"{exc.message} (if that port speaks TLS: rediss://)"
        raise StoreUnavailable(hint, retry_after=exc.retry_after) from exc


def _warn_of_eviction(node: str, info: dict[str, object]) -> None:
    policy = str(info.get("maxmemory_policy", KEEPS_ALL))
    if policy != KEEPS_ALL and not policy.startswith(_VOLATILE):
        log.warning(
            "%s has maxmemory-policy %s: when memory runs out it evicts messages."
            " Set it to noeviction.",
            node,
            policy,
        )


async def _warn_of_memory_only(runner: Runner, node: str, info: dict[str, object]) -> None:
    if _has_aof(info):
        return
    saves = (await runner.configured("save")).get(node)
    if saves == "":
        log.warning(
            "%s keeps messages in memory only (neither AOF nor RDB is on): a restart loses them."
            " Set appendonly yes.",
            node,
        )


def wait_command(address: Address) -> tuple[Argument, ...]:
    """The WAIT or WAITAOF that follows every write, by the URL's settings."""
    options = address.options
    if options.waitaof:
        return ("WAITAOF", 1, options.wait_replicas, options.wait_ms)
    if options.wait_replicas:
        return ("WAIT", options.wait_replicas, options.wait_ms)
    return ()


async def nodes(runner: Runner) -> dict[str, str]:
    """Each primary's facts in one line; raises StoreUnavailable if one does not answer."""
    found = await runner.each("INFO")
    without = [node for node, info in found.items() if not _has_aof(info)]
    durability = f"no AOF on {', '.join(without)}: a crash loses what came after the last snapshot"
    return {
        "durability": durability if without else "AOF on every server",
    } | {
        node: f"Redis {_text(_version(info))}, {info.get('used_memory_human', '?')} used,"
        f" AOF {'on' if _has_aof(info) else 'off'}"
        for node, info in found.items()
    }


def _has_aof(info: dict[str, object]) -> bool:
    return str(info.get("aof_enabled", "0")) == "1"


def _version(info: dict[str, object]) -> tuple[int, ...]:
    parts = str(info.get("redis_version", "0")).split(".")
    return tuple(int(part) for part in parts[:3] if part.isdigit())


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
