"""Two workloads of seven queries: one in which those of many packets carry an expensive operator, one cheap.

As the paper's: filters on protocol, ports, size and hosts, several of them shared; counts of packets and sums
of bytes over sliding windows of thirty seconds to five minutes, answered every second. Queries of many
packets look back far, those of few are selective: rare ports, large packets, some hosts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.benchmarks.workload import STREAM
from slackwater.experiments.prefixes import Prefixes, made_from

ORIGIN = "origin"
"""Name of the function that finds an address's network."""
CUSTOMERS = 12
"""Networks up to this number are customers of ours."""
PEERS = 14
"""Those up to this one exchange traffic with us, the customers among them."""
FEW_HOSTS = 4
LARGE = 500
CONFIDENCE = 0.95

Bools = npt.NDArray[np.bool_]
Tests = Mapping[str, Bools]


@dataclass(frozen=True)
class Watch:
    """One query: an aggregate over the packets that pass all of some tests."""

    name: str
    aggregate: str
    """count(*) or sum(size)."""
    tests: tuple[str, ...]
    """Conditions in SQL."""
    seconds: int

    @property
    def sums(self) -> bool:
        return self.aggregate == "sum(size)"

    @property
    def sql(self) -> str:
        """The query as Slackwater takes it."""
        where = f" WHERE {' AND '.join(self.tests)}" if self.tests else ""
        return (
            f"CREATE QUERY {self.name} AS SELECT {self.aggregate} AS value FROM {STREAM}{where} "
            f"GROUP BY window(ts, '{self.seconds} seconds', '1 second') "
            f"WITH ERROR 5% CONFIDENCE {CONFIDENCE:.0%};"
        )


@dataclass(frozen=True)
class Workload:
    """Seven queries, with the table that their function looks addresses up in."""

    name: str
    queries: tuple[Watch, ...]
    prefixes: Prefixes

    @property
    def longest(self) -> int:
        return max(q.seconds for q in self.queries)

    @cached_property
    def functions(self) -> Mapping[str, tuple[Callable[..., Any], str]]:
        table = self.prefixes

        def origin(address: str) -> int:
            return table(address)

        return {ORIGIN: (origin, "INT")}

    def masks(self, rows: pa.Table) -> dict[str, Bools]:
        """By query: which packets pass all its tests, found without Spark."""
        known: dict[str, Bools] = {}
        for test in dict.fromkeys(t for q in self.queries for t in q.tests):
            known[test] = self._passes(test, rows)
        everything = np.ones(rows.num_rows, dtype=bool)
        return {
            q.name: np.logical_and.reduce([everything, *(known[t] for t in q.tests)]) for q in self.queries
        }

    def _passes(self, test: str, rows: pa.Table) -> Bools:
        name, operator, constant = test.split(" ", 2)
        column: Any
        if name.startswith(ORIGIN):
            sources = rows["src"].combine_chunks().dictionary_encode()
            networks = np.array([self.prefixes(a) for a in sources.dictionary.to_pylist()])
            column = pa.array(networks[sources.indices.to_numpy()])
        else:
            column = rows[name]
        if operator == "IN":
            listed = [text.strip(" '") for text in constant.strip("()").split(",")]
            found = pc.is_in(column, pa.array(listed))
        else:
            wanted = constant.strip("'") if constant.startswith("'") else int(constant)
            found = _COMPARE[operator](column, wanted)
        passed: Bools = found.to_numpy(zero_copy_only=False)
        return passed


_COMPARE: Mapping[str, Callable[..., Any]] = {
    "=": pc.equal,
    ">": pc.greater,
    "<=": pc.less_equal,
}


def workloads(packets: pa.Table, prefixes: int, seed: int) -> dict[str, Workload]:
    """Both workloads for a stream: its own rarer ports, busiest hosts and addresses go into them."""
    tcp, udp = "proto = 'tcp'", "proto = 'udp'"
    probed = _most_common(packets.filter(pc.equal(packets["proto"], "udp"))["dport"], 1)[0]
    hosts = ", ".join(f"'{h}'" for h in _most_common(packets["dst"], FEW_HOSTS))
    few = (
        Watch("web_bytes", "sum(size)", (tcp, "sport = 80"), 60),
        Watch("probes", "count(*)", (udp, f"dport = {probed}"), 30),
        Watch("large_bytes", "sum(size)", (tcp, f"size > {LARGE}"), 300),
        Watch("logins", "count(*)", (tcp, "dport = 22", f"dst IN ({hosts})"), 120),
    )
    customer, peer = f"{ORIGIN}(src) <= {CUSTOMERS}", f"{ORIGIN}(src) <= {PEERS}"
    matched = (
        Watch("customer_packets", "count(*)", (tcp, customer), 300),
        Watch("customer_bytes", "sum(size)", (customer,), 120),
        Watch("peer_packets", "count(*)", (peer,), 30),
    )
    plain = (
        Watch("tcp_packets", "count(*)", (tcp,), 300),
        Watch("tcp_bytes", "sum(size)", (tcp,), 120),
        Watch("all_bytes", "sum(size)", (), 300),
    )
    table = made_from(packets["src"].unique().to_pylist(), prefixes, seed)
    return {
        "network": Workload("network", (*matched, *few), table),
        "cheap": Workload("cheap", (*plain, *few), table),
    }


def _most_common(column: Any, count: int) -> list[Any]:
    found = Counter({item["values"]: item["counts"] for item in pc.value_counts(column).to_pylist()})
    return [value for value, _ in sorted(found.items(), key=lambda kv: (-kv[1], str(kv[0])))[:count]]
