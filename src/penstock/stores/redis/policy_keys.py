"""The names of what policies keep.

Counters live in a fixed number of shards, each with a hash tag of its own: those kept with a key in
the shard of that key, `crc32(key) mod shards`; everything that keys share in one more. How many
shards there are is written down in the book when the store is first used, and never changes.

Per shard (`<prefix>:{tag}:n:…`):
  v          STRING  the version of the rules that holds
  a:<key>    STRING  the counters of one key, packed (lua/policy_common.lua); with a time to live
  s:<list>   SET     keys of the shard on a suppression list, and the empty one
In the shared one:
  v          STRING  as above
  p          HASH    mark of a pace → its state, packed
  c:<name>   STRING  the sends of a counter · h:<name> ZSET id → place held until
  r:<name>   ZSET    id that was counted → remembered until; all three with a time to live
Of the whole store: `<prefix>:policies` HASH, the book (lua/policy_book.lua).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from zlib import crc32

from penstock.stores.redis.keys import tag_of


class ShardKeys:
    """The names of one shard's keys."""

    __slots__ = ("_prefix", "number", "paces", "version")

    def __init__(self, prefix: str, number: int) -> None:
        self.number = number
        self._prefix = f"{prefix}:{{{tag_of(number)}}}:n:".encode()
        self.version = self._prefix + b"v"
        self.paces = self._prefix + b"p"

    def account(self, key: bytes) -> bytes:
        return self._prefix + b"a:" + key

    def accounts(self, keys: Iterable[bytes]) -> Sequence[bytes]:
        prefix = self._prefix + b"a:"
        return [prefix + key for key in keys]

    def list(self, list_id: str, under_way: str = "") -> bytes:
        suffix = f":{under_way}" if under_way else ""
        return self._prefix + f"s:{list_id}{suffix}".encode()

    def counter(self, name: str) -> tuple[bytes, bytes, bytes]:
        """Its sends, who holds a place, who was counted."""
        text = name.encode()
        prefix = self._prefix
        return prefix + b"c:" + text, prefix + b"h:" + text, prefix + b"r:" + text


class CounterKeys:
    """Where counters are."""

    def __init__(self, prefix: str, shards: int) -> None:
        self.shards = [ShardKeys(prefix, number) for number in range(shards)]
        self.shared = ShardKeys(prefix, shards)
        self.all = [*self.shards, self.shared]

    def shard_of(self, key: bytes) -> ShardKeys:
        return self.shards[crc32(key) % len(self.shards)]
