"""A catalog that the tests of the plan share, and how they ask it."""

from __future__ import annotations

import re

import pytest

from slackwater.errors import LanguageError
from slackwater.language.aggregates import UserAggregate
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.model import Lookup, Step

DECLARED = """\
CREATE STREAM p (ts TIMESTAMP, src STRING, sport INT, dport INT, size INT)
  USING kafka FORMAT json TIMESTAMP BY ts;
CREATE STREAM load (ts TIMESTAMP, host STRING, pps DOUBLE) USING agents KEY host TIMESTAMP BY ts;
CREATE STREAM ticks (ts TIMESTAMP, symbol STRING, price DOUBLE) USING rate KEY symbol TIMESTAMP BY ts;
CREATE TABLE sites (host STRING, site STRING) USING parquet OPTIONS (path 'sites');
CREATE TABLE holdings (account STRING, symbol STRING, qty DOUBLE) USING parquet OPTIONS (path 'holdings');
"""
LINES = DECLARED.count("\n")
MINUTE = "GROUP BY window(ts, '1 minute')"
LONGEST = UserAggregate(init=str, incr=lambda state, _: state, final=lambda state: state)
FUNCTIONS = Functions(frozenset({"risky"}), {"longest": LONGEST})


def catalog(text: str) -> Catalog:
    return Catalog.from_sql(DECLARED + text, FUNCTIONS)


def query(select: str, name: str = "q") -> Step:
    return catalog(f"CREATE QUERY {name} AS {select}").steps[name]


def refusal(text: str) -> str:
    """The message of the error that a text is refused with; it must say where."""
    with pytest.raises(LanguageError) as caught:
        catalog(text)
    message = str(caught.value)
    assert caught.value.position is not None
    assert re.match(r"line \d+, column \d+: ", message), message
    assert caught.value.position.line > LINES
    return message


LOOKUPS = (
    Lookup("sites", "l_sites_000001", "s.`a` = l_sites_000001.`host`", ("host",), True),
    Lookup("areas", "l_areas_000002", "l_sites_000001.`site` = l_areas_000002.`site`", ("site",), True),
)


def ports(*numbers: int, template: str = "dport = {}") -> str:
    return "".join(
        f"CREATE QUERY port_{n} AS SELECT COUNT(*) AS n FROM p WHERE {template.format(n)} {MINUTE};\n"
        for n in numbers
    )


EVERYTHING = f"""
CREATE QUERY web AS SELECT SUM(size) AS b, STDDEV(size) AS d FROM p WHERE sport = 80
  GROUP BY window(ts, '1 minute', '5 seconds');
CREATE QUERY hosts AS SELECT src, MEDIAN(size) AS m FROM p {MINUTE}, src;
CREATE QUERY risk AS SELECT COUNT(*) AS n FROM p WHERE risky(size) {MINUTE};
CREATE QUERY names AS SELECT longest(src) AS n FROM p {MINUTE} WITH EXACT;
CREATE QUERY runs AS SELECT COUNT(*) AS n FROM p GROUP BY tuples(100, 10);
CREATE QUERY here AS SELECT COUNT(*) AS n FROM p JOIN sites ON src = host {MINUTE};
CREATE QUERY there AS SELECT COUNT(*) AS n FROM p LEFT JOIN sites ON src = host {MINUTE};
CREATE QUERY raw AS SELECT ts, size FROM p WHERE size > 5;
CREATE QUERY now AS SELECT AVG(pps) AS a FROM LATEST(load);
""" + ports(*range(10))
