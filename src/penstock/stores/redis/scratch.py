"""A store to try things in: on the same server under a prefix of its own, gone afterwards."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from penstock.stores.redis.address import parse_address
from penstock.stores.redis.connect import Cursors, connect

KINDS = ("string", "hash", "list", "zset", "set", "stream")
COUNT = 1_000


def scratch_url(url: str, mark: str) -> str:
    """The same server and settings; no key's name begins as those of the real store do."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    options["prefix"] = f"{mark}-{parse_address(url).prefix}"
    return urlunsplit(parts._replace(query=urlencode(options)))


async def erase(url: str) -> None:
    """Unlink every key of this prefix; looked for in steps, so that the server stays free."""
    address = parse_address(url)
    server = connect(address)
    try:
        for kind in KINDS:
            cursors: Cursors = {}
            more = True
            while more:
                keys, cursors = await server.scan(cursors, f"{address.prefix}:*", COUNT, kind)
                for key in keys:
                    await server.call("UNLINK", key)
                more = bool(cursors)
    finally:
        await server.close()
