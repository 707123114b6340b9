"""A store to try things in: on the same server under a prefix of its own, gone afterwards."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from penstock.model.errors import StoreUnavailable
from penstock.redis_kit.address import parse_address
from penstock.redis_kit.connect import Cursors, Server, connect
from penstock.redis_kit.errors import Vendor, translate

KINDS = ("string", "hash", "list", "zset", "set", "stream")
COUNT = 1_000


def scratch_url(url: str, mark: str) -> str:
    """The same server and settings; no key's name begins as those of the real store do."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    options["prefix"] = f"{mark}-{parse_address(url).prefix}"
    return urlunsplit(parts._replace(query=urlencode(options)))


async def erase(url: str) -> None:
    """Unlink every key of this prefix; StoreUnavailable names the keys when they may stay."""
    address = parse_address(url)
    server = connect(address)
    keys = f"{address.prefix}:*"
    try:
        await _unlink(server, keys)
    except Vendor as exc:
        why = translate(exc, address.name, retry_after=1.0).message
        raise StoreUnavailable(f"the keys {keys} may be left behind: {why}") from exc
    finally:
        await server.close()


async def _unlink(server: Server, match: str) -> None:
    """Looked for in steps, so that the server stays free."""
    for kind in KINDS:
        cursors: Cursors = {}
        more = True
        while more:
            keys, cursors = await server.scan(cursors, match, COUNT, kind)
            for key in keys:
                await server.call("UNLINK", key)
            more = bool(cursors)
