"""Declarations that the tests of EXPLAIN share, and their plans."""

from __future__ import annotations

from declared import FUNCTIONS
from slackwater.plan.catalog import Catalog
from slackwater.plan.layout import extend
from slackwater.plan.tables import Plan

PACKETS = """
CREATE STREAM packets (ts TIMESTAMP, src STRING, dst STRING, sport INT, dport INT, size INT)
  USING kafka OPTIONS (subscribe 'packets') FORMAT json TIMESTAMP BY ts LATENESS 2 SECONDS;
"""
SITES = "CREATE TABLE sites (host STRING, site STRING) USING parquet OPTIONS (path 'sites.parquet');"
LOAD = "CREATE STREAM load (ts TIMESTAMP, host STRING, pps DOUBLE) USING agents KEY host TIMESTAMP BY ts;"

PREFIXES = (
    PACKETS
    + """
CREATE QUERY web AS SELECT SUM(size) AS bytes FROM packets WHERE sport = 80
  GROUP BY window(ts, '60 seconds', '1 second') WITH ERROR 5% CONFIDENCE 99% WEIGHT 2;
CREATE QUERY big_web AS SELECT COUNT(*) AS n FROM packets WHERE size > 1000 AND sport = 80
  GROUP BY window(ts, '10 seconds') WITH SUBSET GAP 10;
CREATE QUERY web_again AS SELECT SUM(size) AS size FROM packets WHERE sport = 80
  GROUP BY window(ts, '30 seconds');
CREATE QUERY hosts AS SELECT src, COUNT(*) AS n, MEDIAN(size) AS middle FROM packets WHERE sport = 80
  GROUP BY window(ts, '1 minute'), src HAVING COUNT(*) > 100;
"""
)
LOOKUP = (
    PACKETS
    + SITES
    + """
CREATE QUERY by_site AS SELECT site, SUM(size) AS bytes FROM packets JOIN sites ON src = sites.host
  WHERE sport = 80 AND site <> 'lab' GROUP BY window(ts, '1 minute'), site;
CREATE QUERY known AS SELECT COUNT(site) AS n FROM packets LEFT JOIN sites ON src = sites.host
  GROUP BY window(ts, '1 minute');
"""
)
NESTED = (
    PACKETS
    + """
CREATE VIEW small AS SELECT ts, size FROM packets WHERE size < 1500;
CREATE VIEW spread AS SELECT MAX(size) - MIN(size) AS d FROM small GROUP BY window(ts, '5 minutes');
CREATE QUERY jumps AS SELECT COUNT(*) AS n FROM spread WHERE d > 500 GROUP BY window(ts, '1 hour')
  WITH SUBSET GAP 10;
CREATE QUERY most AS SELECT MAX(n) AS n FROM jumps GROUP BY window(ts, '1 day');
CREATE QUERY alarms AS SELECT d FROM spread WHERE d > 1400;
"""
)
ALIKE = PACKETS + "".join(
    f"CREATE QUERY port_{port} AS SELECT COUNT(*) AS n FROM packets WHERE sport = 80 AND dport = {port} "
    "GROUP BY window(ts, '1 minute');\n"
    for port in range(10)
)
TUPLES = (
    PACKETS
    + """
CREATE QUERY runs AS SELECT COUNT(*) AS n, SUM(size) AS bytes FROM packets WHERE sport = 80
  GROUP BY tuples(1000, 100) WITH EXACT;
"""
)
PYTHON = (
    PACKETS
    + """
CREATE QUERY risk AS SELECT COUNT(*) AS n FROM packets WHERE risky(size) AND sport = 80
  GROUP BY window(ts, '1 minute');
CREATE QUERY web AS SELECT COUNT(*) AS n FROM packets WHERE sport = 80 GROUP BY window(ts, '1 minute');
CREATE QUERY names AS SELECT longest(src) AS name FROM packets GROUP BY window(ts, '1 minute') WITH EXACT;
"""
)
LATEST = (
    LOAD
    + """
CREATE QUERY traffic AS SELECT AVG(pps) AS pps FROM LATEST(load) WITH PRECISION 5;
CREATE QUERY busy AS SELECT host, pps FROM LATEST(load) WHERE pps > 100;
"""
)
EXTREMES = (
    SITES
    + """
CREATE STREAM ticks (ts TIMESTAMP, host STRING, price DOUBLE) USING rate KEY host TIMESTAMP BY ts
  TICK 500 MILLISECONDS INTERRUPTED AFTER 30 SECONDS;
CREATE QUERY peak AS
  SELECT site, SUM(price) AS now, max_over(SUM(price) / COUNT(*), '20 seconds') AS p,
    min_since(AVG(price), TIMESTAMP '2026-01-31 09:00:00') AS low
  FROM LATEST(ticks) JOIN sites USING (host) GROUP BY site HAVING max_over(AVG(price), '1 minute') > 3;
"""
)
ALL = {
    "prefixes": PREFIXES,
    "lookup": LOOKUP,
    "nested": NESTED,
    "alike": ALIKE,
    "tuples": TUPLES,
    "python": PYTHON,
    "latest": LATEST,
    "extremes": EXTREMES,
}


def planned(text: str, before: Plan | None = None) -> Plan:
    return extend(before or Plan(), Catalog.from_sql(text, FUNCTIONS))
