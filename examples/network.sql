-- A network monitor over thirty seconds of generated traffic, with a burst of DNS requests in the middle.
--   slackwater explain examples/network.sql
--   slackwater run examples/network.sql --answers answers.jsonl
-- Paths are relative to where the command runs: the root of the repository.
CREATE STREAM packets (ts TIMESTAMP, src STRING, dst STRING, sport INT, dport INT, proto STRING, size INT)
  USING traffic OPTIONS (
    seed '7', rate '1000', hosts '200', bursts '10:5:5:port=53', length '30 seconds', speed 'max')
  TIMESTAMP BY ts;

CREATE TABLE services (port INT, service STRING, owner STRING)
  USING csv OPTIONS (path 'examples/services.csv', header 'true');

-- Three readers of one filter: proto = 'tcp' is tested once, dport = 443 once below it.
CREATE QUERY tcp_rate AS
  SELECT COUNT(*) AS packets, SUM(size) AS bytes FROM packets WHERE proto = 'tcp'
  GROUP BY window(ts, '10 seconds', '1 second')
  WITH ERROR 1% CONFIDENCE 99% WEIGHT 2;

CREATE QUERY https_sizes AS
  SELECT AVG(size) AS mean, STDDEV(size) AS spread FROM packets WHERE dport = 443 AND proto = 'tcp'
  GROUP BY window(ts, '10 seconds', '5 seconds')
  WITH ERROR 5%;

CREATE QUERY https_median AS
  SELECT MEDIAN(size) AS middle FROM packets WHERE proto = 'tcp' AND dport = 443
  GROUP BY window(ts, '10 seconds')
  WITH EXACT PRIORITY 1;

-- A lookup: each row finds at most one row of the table.
CREATE QUERY bytes_by_service AS
  SELECT service, owner, SUM(size) AS bytes FROM packets JOIN services ON dport = services.port
  GROUP BY window(ts, '10 seconds'), service, owner
  WITH ERROR 5%;

-- Nesting: a view hands on one row per second, two queries read them.
CREATE VIEW seconds AS
  SELECT COUNT(*) AS n, COUNT(DISTINCT src) AS senders FROM packets GROUP BY window(ts, '1 second');

CREATE QUERY busiest_second AS
  SELECT MAX(n) AS packets, MAX(senders) AS senders FROM seconds
  GROUP BY window(ts, '10 seconds')
  WITH SUBSET GAP 10;

CREATE QUERY busy_seconds AS
  SELECT COUNT(*) AS seconds FROM seconds WHERE n > 2000
  GROUP BY window(ts, '30 seconds')
  WITH EXACT;

-- A window over rows: every thousand DNS requests, whenever they come.
CREATE QUERY dns_thousand AS
  SELECT COUNT(DISTINCT src) AS senders, MAX(size) AS largest FROM packets WHERE dport = 53
  GROUP BY tuples(1000)
  WITH SUBSET GAP 5;

-- No aggregate: the rows themselves are the answers.
CREATE QUERY remote_desktop AS
  SELECT ts, src, dst, size FROM packets WHERE dport = 3389 AND size > 600
  WITH EXACT;

-- Eight queries that differ in one constant: one signature, found by one join with their constants.
CREATE QUERY port_22   AS SELECT COUNT(*) AS n FROM packets WHERE dport = 22   GROUP BY window(ts, '10 seconds');
CREATE QUERY port_25   AS SELECT COUNT(*) AS n FROM packets WHERE dport = 25   GROUP BY window(ts, '10 seconds');
CREATE QUERY port_53   AS SELECT COUNT(*) AS n FROM packets WHERE dport = 53   GROUP BY window(ts, '10 seconds');
CREATE QUERY port_80   AS SELECT COUNT(*) AS n FROM packets WHERE dport = 80   GROUP BY window(ts, '10 seconds');
CREATE QUERY port_123  AS SELECT COUNT(*) AS n FROM packets WHERE dport = 123  GROUP BY window(ts, '10 seconds');
CREATE QUERY port_993  AS SELECT COUNT(*) AS n FROM packets WHERE dport = 993  GROUP BY window(ts, '10 seconds');
CREATE QUERY port_3306 AS SELECT COUNT(*) AS n FROM packets WHERE dport = 3306 GROUP BY window(ts, '10 seconds');
CREATE QUERY port_8080 AS SELECT COUNT(*) AS n FROM packets WHERE dport = 8080 GROUP BY window(ts, '10 seconds');
