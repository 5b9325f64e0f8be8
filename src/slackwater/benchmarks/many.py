"""Many queries over one stream: alike ones that differ in constants, and a hundred that share nothing."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.benchmarks.workload import STREAM

SERVICES = (443, 80, 53, 22, 25, 993, 8080, 123, 3306, 3389)
FIRST_EPHEMERAL = 32_768
SMALLEST, LARGEST = 40, 1_500
MATCHES = 3
"""Ranges that a row is in, however many there are."""


@dataclass(frozen=True)
class Standing:
    """A query with a window that tumbles, so that its answers add up to the aggregate over all rows."""

    name: str
    aggregate: str
    where: str

    @property
    def sql(self) -> str:
        return (
            f"CREATE QUERY {self.name} AS SELECT {self.aggregate} AS value FROM {STREAM} WHERE {self.where} "
            "GROUP BY window(ts, '10 seconds');"
        )


def equalities(count: int) -> list[Standing]:
    """Queries that differ in one port: a row is in one of them, or in none."""
    ephemeral = range(FIRST_EPHEMERAL, FIRST_EPHEMERAL + max(0, count - len(SERVICES)))
    ports = [*SERVICES, *ephemeral][:count]
    return [Standing(f"port_{port}", "sum(size)", f"dport = {port}") for port in ports]


def ranges(count: int) -> list[Standing]:
    """Queries that differ in a range of sizes: a row is in about three of them, where there are three."""
    matches = min(MATCHES, count)
    step = (LARGEST - SMALLEST) / max(1, count - matches + 1)
    found = []
    for index in range(count):
        low = round(SMALLEST + (index - matches + 1) * step)
        high = round(SMALLEST + (index + 1) * step) + (index == count - 1)
        where = f"size >= {low} AND size < {high}"
        found.append(Standing(f"sizes_{index}", "sum(dport)", where))
    return found


_FIRST = (
    "dport = 443",
    "sport < 1024",
    "proto = 'udp'",
    "size % 7 = 3",
    "sport > dport",
    "src LIKE '%7'",
    "length(dst) > 8",
    "dport BETWEEN 20 AND 100",
    "size * 3 < dport",
    "substr(src, 1, 5) = '10.0.'",
)
_SECOND = (
    "size > 200",
    "size + sport < 40000",
    "dst IS NOT NULL",
    "dport % 2 = 0",
    "NOT (sport = 80)",
    "dst LIKE '10.%'",
    "proto IN ('tcp', 'sctp')",
    "abs(sport - dport) > 1000",
    "src <> dst",
    "size < 60 OR size > 1000",
)
_AGGREGATES = (
    "sum(size)",
    "count(*)",
    "max(size)",
    "sum(dport)",
    "min(sport)",
    "avg(size)",
    "sum(size * 2)",
    "max(sport + dport)",
    "count(src)",
    "avg(size + dport)",
)


def unlike(count: int) -> list[Standing]:
    """Up to a hundred queries: every pair of the tests, with an aggregate that goes round among them."""
    found = []
    for index in range(count):
        first, second = index % 10, (index + index // 10) % 10
        aggregate = _AGGREGATES[(index + 3 * (index // 10)) % 10]
        where = f"({_FIRST[first]}) AND ({_SECOND[second]})"
        found.append(Standing(f"unlike_{index}", aggregate, where))
    return found
