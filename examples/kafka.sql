-- The same kinds of query over Kafka, agents and current values.
--   slackwater check examples/kafka.sql
-- `check` accepts all of it. To run it, a broker, a hub and the files it names must be there.
CREATE STREAM packets (ts TIMESTAMP, src STRING, dst STRING, sport INT, dport INT, size INT)
  USING kafka OPTIONS (subscribe 'packets', 'kafka.bootstrap.servers' 'localhost:9092')
  FORMAT json TIMESTAMP BY ts LATENESS 2 SECONDS;

CREATE TABLE holdings (account STRING, symbol STRING, qty DOUBLE)
  USING csv OPTIONS (path 'examples/holdings.csv', header 'true');

CREATE QUERY web_bytes AS
  SELECT SUM(size) AS bytes FROM packets WHERE sport = 80
  GROUP BY window(ts, '60 seconds', '1 second')
  WITH ERROR 5% CONFIDENCE 99% WEIGHT 2;

CREATE VIEW spread AS
  SELECT MAX(size) - MIN(size) AS d FROM packets GROUP BY window(ts, '5 minutes');

CREATE QUERY jumps AS
  SELECT COUNT(*) AS n FROM spread WHERE d > 500 GROUP BY window(ts, '1 hour')
  WITH SUBSET GAP 10;

CREATE STREAM load (ts TIMESTAMP, host STRING, pps DOUBLE)
  USING agents OPTIONS (hub 'ws://localhost:7400') KEY host TIMESTAMP BY ts TOLERANCE 400 MILLISECONDS MAX RATE 5 PER SECOND;

CREATE QUERY traffic AS SELECT AVG(pps) AS pps FROM LATEST(load) WITH PRECISION 5;

CREATE STREAM ticks (ts TIMESTAMP, symbol STRING, price DOUBLE)
  USING kafka OPTIONS (subscribe 'ticks', 'kafka.bootstrap.servers' 'localhost:9092')
  FORMAT json KEY symbol TIMESTAMP BY ts IDLE 10 SECONDS;

CREATE QUERY worth AS
  SELECT account, SUM(qty * price) AS worth FROM LATEST(ticks) JOIN holdings USING (symbol)
  GROUP BY account
  WITH DRIFT 1% BELIEF 90%;
