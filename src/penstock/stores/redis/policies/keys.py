"""The names of what policies keep.

Counters live in a fixed number of shards, each with a hash tag of its own: those kept with a key in
the shard of that key, `crc32(key) mod shards`; everything that keys share in one more. How many
shards there are is written down in the book when the store is first used, and never changes.

Per shard (`<prefix>:{tag}:n:…`):
  v          STRING  the version of the rules that holds
  k          HASH    key → its counters, packed (kept.lua); with a time to live for when
                     nobody is decided about any more: before that, scripts drop what is of no use
  s:<list>   SET     keys of the shard on a suppression list, and the empty one
In the shared one:
  v          STRING  as above
  p          HASH    mark of a pace → its state, packed
  c:<name>   STRING  the sends of a counter · i:<name> HASH id → place held until, or counted
  q:<name>   LIST    ids that were counted, the oldest first (places.lua); all three with
                     a time to live
Of the whole store: `<prefix>:policies` HASH, the book (book.lua).
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from penstock.stores.redis.keys import tag_of


class ShardKeys:
    """The names of one shard's keys."""

    __slots__ = ("_prefix", "accounts", "number", "paces", "version")

    def __init__(self, prefix: str, number: int) -> None:
        self.number = number
        self._prefix = f"{prefix}:{{{tag_of(number)}}}:n:".encode()
        self.version = self._prefix + b"v"
        self.paces = self._prefix + b"p"
        self.accounts = self._prefix + b"k"

    def list(self, list_id: str, under_way: str = "") -> bytes:
        suffix = f":{under_way}" if under_way else ""
        return self._prefix + f"s:{list_id}{suffix}".encode()

    def counter(self, name: str) -> Sequence[bytes]:
        """The keys of a counter: its sends, its ids, and those that were counted."""
        text = name.encode()
        return [self._prefix + kind + text for kind in (b"c:", b"i:", b"q:")]


class CounterKeys:
    """The keys of the counters."""

    def __init__(self, prefix: str, shards: int) -> None:
        self.shards = [ShardKeys(prefix, number) for number in range(shards)]
        self.shared = ShardKeys(prefix, shards)
        self.all = [*self.shards, self.shared]

    def shard_of(self, key: bytes) -> ShardKeys:
        return self.shards[crc32(key) % len(self.shards)]
