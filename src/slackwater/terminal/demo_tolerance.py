"""The demo's second slider: contracts that allow more, or less, than they were declared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from slackwater.language.contracts import Contract, Drift, Error, Precision, Subset
from slackwater.plan.catalog import Catalog

_DIGITS = 3


def scaled(contract: Contract, factor: float) -> Contract:
    """A contract that allows so many times what it did; EXACT stays.

    >>> str(scaled(Error(0.05), 2)), str(scaled(Subset(5), 0.1)), str(scaled(Error(0.4), 9))
    ('ERROR 10%', 'SUBSET GAP 1', 'ERROR 100%')
    >>> str(scaled(Precision(8), 0.5)), str(scaled(Drift(0.01, relative=True, belief=0.9), 3))
    ('PRECISION 4', 'DRIFT 3% BELIEF 90%')
    """
    if isinstance(contract, Error):
        return replace(contract, bound=min(1.0, _rounded(contract.bound * factor)))
    if isinstance(contract, Subset):
        return replace(contract, gap=max(1, round(contract.gap * factor)))
    if isinstance(contract, Precision):
        return replace(contract, width=_rounded(contract.width * factor))
    if isinstance(contract, Drift):
        return replace(contract, bound=_rounded(contract.bound * factor))
    return contract


def _rounded(value: float) -> float:
    """To a few digits: what is shown should be read at a glance."""
    return float(f"{value:.{_DIGITS}g}")


class Tolerance:
    """Knows what contracts were declared as, and has them allow so many times that.

    What a visitor has altered, dropped or created is the visitor's, and is left alone.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._declared: Mapping[str, Contract] = {n: catalog.contracts[n] for n in catalog.queries}
        self._said: dict[str, Contract] = dict(self._declared)

    def wanted(self, catalog: Catalog, factor: float) -> dict[str, Contract]:
        """Contracts that are not as they should be, as they should be."""
        return {
            name: scaled(declared, factor)
            for name, declared in self._declared.items()
            if name in catalog.queries
            and catalog.contracts[name] == self._said[name] != scaled(declared, factor)
        }

    def set(self, factor: float, catalog: Catalog, sql: Callable[[str], object]) -> None:
        """Alter contracts with ``sql``; where it raises, all can be tried again."""
        wanted = self.wanted(catalog, factor)
        if wanted:
            names = {name: catalog.queries[name].name for name in wanted}
            sql("\n".join(f"ALTER QUERY {names[name]} WITH {contract};" for name, contract in wanted.items()))
            self._said.update(wanted)
