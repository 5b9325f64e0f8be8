-- This machine's network counters, in bytes a second, as intervals: an agent sends only what leaves its bound.
--   slackwater hub --listen 127.0.0.1:7400 --directory .slackwater/hub
--   slackwater agent --hub ws://127.0.0.1:7400 --stream counters --counters
--   slackwater run examples/agents.sql --answers -
-- The three run side by side, each in a terminal of its own; any of them may be stopped and started again.
CREATE STREAM counters (ts TIMESTAMP, host STRING, interface STRING, bytes_recv DOUBLE, bytes_sent DOUBLE)
  USING agents OPTIONS (hub 'ws://127.0.0.1:7400') KEY (host, interface) TIMESTAMP BY ts TOLERANCE 1 SECOND;

-- both ways of all interfaces together, never more than 2 kB/s apart from the truth
CREATE QUERY traffic AS
  SELECT SUM(bytes_recv + bytes_sent) AS bytes, COUNT(*) AS interfaces FROM LATEST(counters)
  WITH PRECISION 4000;

-- what each host receives more than it sends: weights of either sign
CREATE QUERY surplus AS
  SELECT host, SUM(bytes_recv - bytes_sent) AS surplus FROM LATEST(counters) GROUP BY host
  WITH PRECISION 6000;
