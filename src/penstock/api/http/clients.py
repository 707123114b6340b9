"""The client of a request: the peer, or the address that a trusted proxy forwards."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

IPV6_PREFIX = 64
"""Prefix length of an IPv6 customer's network; the customer chooses the other bits."""


class Clients:
    """Identifies clients for rate limits; X-Forwarded-For counts only from trusted proxies."""

    def __init__(self, trusted_proxies: Iterable[str] = ()) -> None:
        self._trusted = [ipaddress.ip_network(each, strict=False) for each in trusted_proxies]

    def name(self, peer: str, forwarded: bytes | None) -> str:
        """The last address that is not a trusted proxy's; of IPv6 its network."""
        if forwarded is None or not self._trusted or not self._is_trusted(peer):
            return client_name(peer)
        hops = [hop.strip() for hop in forwarded.decode("latin-1").split(",")]
        for hop in reversed(hops):
            if _address(hop) is None:
                break  # addresses before it may be forged
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
