"""Who a request comes from: the peer, or whom a trusted proxy names."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

IPV6_PREFIX = 64
"""Bits of an IPv6 address that one customer has; the rest is for them to choose."""


class Clients:
    """Tells clients apart for limits; X-Forwarded-For counts only from trusted proxies."""

    def __init__(self, trusted_proxies: Iterable[str] = ()) -> None:
        self._trusted = [ipaddress.ip_network(each, strict=False) for each in trusted_proxies]

    def name(self, peer: str, forwarded: bytes | None) -> str:
        """The client's address, of IPv6 its network: the last one that no trusted proxy has."""
        if forwarded is None or not self._trusted or not self._is_trusted(peer):
            return client_name(peer)
        hops = [hop.strip() for hop in forwarded.decode("latin-1").split(",")]
        for hop in reversed(hops):
            if _address(hop) is None:
                break  # whatever is before it is not to be believed
            peer = hop
            if not self._is_trusted(hop):
                break
        return client_name(peer)

    def _is_trusted(self, text: str) -> bool:
        address = _address(text)
        return address is not None and any(address in network for network in self._trusted)


@lru_cache(maxsize=1_024)
def client_name(text: str) -> str:
    """One client of the rate limits: an IPv4 address, or an IPv6 network."""
    address = _address(text)
    if address is None or address.version == 4:
        return text if address is None else str(address)
    return str(ipaddress.ip_network((int(address), IPV6_PREFIX), strict=False))


def _address(text: str) -> Address | None:
    """An address; one of IPv4 in the clothes of IPv6 is the IPv4 one."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
