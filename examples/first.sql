-- Thirty seconds of generated traffic, read as fast as it goes.
--   slackwater run examples/first.sql
CREATE STREAM packets (ts TIMESTAMP, dport INT, size INT)
  USING traffic OPTIONS (seed '1', rate '1000', length '30 seconds', speed 'max')
  TIMESTAMP BY ts;

CREATE QUERY web_bytes AS
  SELECT SUM(size) AS bytes FROM packets WHERE dport = 80
  GROUP BY window(ts, '10 seconds')
  WITH ERROR 5% CONFIDENCE 99%;
