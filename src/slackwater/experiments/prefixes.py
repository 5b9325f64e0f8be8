"""Longest-prefix match: the autonomous network that an address belongs to, as routers find it.

The expensive operator of the experiments: "autonomous subnetwork of packet origin (identified via
user-defined functions based on longest prefix matching of IP addresses)", as the sampling paper has it.
Reference: Babcock, Datar, Motwani (ICDE 2004), section 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LENGTHS = (28, 24, 20, 16, 12, 8)
"""Longest first, as they are tried."""
NETWORKS = 16
UNKNOWN = 0
"""The network of an address that no prefix matches."""


def to_number(address: str) -> int:
    """An address as 32 bits.

    >>> hex(to_number("10.0.3.17"))
    '0xa000311'
    """
    a, b, c, d = address.split(".")
    return int(a) << 24 | int(b) << 16 | int(c) << 8 | int(d)


@dataclass(frozen=True)
class Prefixes:
    """A routing table: by length the networks of prefixes, each a dictionary.

    >>> table = Prefixes(((24, {0x0A0003: 7}), (8, {0x0A: 2})))
    >>> table("10.0.3.17"), table("10.1.0.1"), table("11.0.0.1")
    (7, 2, 0)
    """

    by_length: tuple[tuple[int, dict[int, int]], ...]

    def __call__(self, address: str) -> int:
        """The number of the network with the longest prefix of an address."""
        number = to_number(address)
        for length, networks in self.by_length:
            found = networks.get(number >> (32 - length))
            if found is not None:
                return found
        return UNKNOWN

    def __len__(self) -> int:
        return sum(len(networks) for _, networks in self.by_length)


def made_from(addresses: Sequence[str], count: int, seed: int) -> Prefixes:
    """About so many prefixes of the addresses themselves, of all lengths, each of a network by chance."""
    random = np.random.default_rng(seed)
    numbers = np.array(sorted({to_number(a) for a in addresses}))
    made = []
    for length in LENGTHS:
        distinct = np.unique(numbers >> (32 - length))
        chosen = random.permutation(distinct)[: count // len(LENGTHS)]
        networks = random.integers(1, NETWORKS + 1, len(chosen))
        made.append((length, dict(zip(chosen.tolist(), networks.tolist(), strict=True))))
    return Prefixes(tuple(made))
