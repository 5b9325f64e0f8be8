"""The demo's own function: which network an address is in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import ip_network

OFFICE, GUESTS = "10.0.2.0/23", "10.0.4.0/22"
LOCAL = ("10.0.0.0/8", "10.0.0.0/16", "10.0.0.0/22", OFFICE, GUESTS, "10.0.4.128/25")
"""Networks that the demo's packets go to, several of them inside others."""
ELSEWHERE = tuple(f"10.{site}.{floor}.0/24" for site in range(16, 136) for floor in range(32))
ROUTES = (*LOCAL, *ELSEWHERE)


def longest_prefix(prefixes: Sequence[str]) -> Callable[[str | None], str | None]:
    """A function that finds the smallest of some networks that an address lies in.

    It looks at one after the other, as people write it first: every row takes its time.

    >>> find = longest_prefix(["10.0.0.0/8", "10.1.0.0/16"])
    >>> find("10.1.2.3"), find("10.2.2.3"), find("192.168.0.1"), find(None)
    ('10.1.0.0/16', '10.0.0.0/8', None, None)
    """
    networks = sorted((ip_network(prefix) for prefix in prefixes), key=lambda n: -n.prefixlen)
    table = [(int(n.netmask), int(n.network_address), str(n)) for n in networks]

    def find(address: str | None) -> str | None:
        if address is None:
            return None
        a, b, c, d = address.split(".")
        number = (int(a) << 24) | (int(b) << 16) | (int(c) << 8) | int(d)
        for mask, network, prefix in table:
            if number & mask == network:
                return prefix
        return None

    return find
