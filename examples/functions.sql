-- Functions and aggregates of your own; functions.py registers them.
--   slackwater run examples/functions.sql --import examples/functions.py
CREATE STREAM packets (ts TIMESTAMP, src STRING, dport INT, size INT)
  USING traffic OPTIONS (seed '3', rate '300', length '20 seconds', speed 'max')
  TIMESTAMP BY ts;

-- subnet() is a Python function.
CREATE QUERY by_subnet AS
  SELECT subnet(src) AS net, COUNT(*) AS packets FROM packets WHERE dport = 443
  GROUP BY window(ts, '10 seconds'), subnet(src)
  WITH ERROR 5%;

-- span() has a merge: panes hold one state each, and windows that overlap share them.
CREATE QUERY size_span AS
  SELECT span(size) AS span FROM packets
  GROUP BY window(ts, '10 seconds', '5 seconds')
  WITH SUBSET GAP 3;

-- longest_rise() has none: the rows of a window are kept until it closes.
CREATE QUERY rising AS
  SELECT longest_rise(size) AS longest FROM packets WHERE dport = 443
  GROUP BY window(ts, '10 seconds')
  WITH EXACT;
