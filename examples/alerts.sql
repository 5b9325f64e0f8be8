-- Who is told when an answer goes too far: two alerts on a minute of generated traffic, with a burst in it.
-- Side by side, each in a terminal of its own:
--   python examples/webhook.py --port 8600
--   slackwater run examples/alerts.sql
CREATE STREAM packets (ts TIMESTAMP, dport INT, size INT)
  USING traffic OPTIONS (seed '1', rate '500', length '60 seconds', speed '10', bursts '20:20:5:port=80')
  TIMESTAMP BY ts;

CREATE QUERY by_port AS
  SELECT dport, SUM(size) AS bytes FROM packets WHERE dport IN (53, 80, 443)
  GROUP BY window(ts, '5 seconds'), dport
  WITH ERROR 5% CONFIDENCE 95%;

CREATE QUERY rate AS
  SELECT COUNT(*) AS packets FROM packets GROUP BY window(ts, '5 seconds')
  WITH ERROR 5%;

-- told once it is certain: the whole interval is above the limit; for each port by itself
CREATE ALERT heavy ON by_port WHEN bytes > 2e5 TO 'http://127.0.0.1:8600/heavy';

-- told as soon as it may be: some of the interval is
CREATE ALERT busy ON rate WHEN packets > 6000 POSSIBLY TO 'http://127.0.0.1:8600/busy';
