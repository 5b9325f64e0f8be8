-- Bursty network traffic, made up as it goes: calm, then a burst to fifteen times the rate, then calm.
CREATE STREAM packets (ts TIMESTAMP, src STRING, dst STRING, sport INT, dport INT, proto STRING, size INT)
  USING traffic OPTIONS (seed '7', rate '20000', hosts '2000', bursts '15:15:15', speed '1')
  TIMESTAMP BY ts;

-- Six readers, six things they can live with. network() finds the network of an address by its longest prefix: a
-- Python function, the costliest operator here. When the burst is more than this machine can do, its query is thinned out first.
CREATE QUERY office_bytes AS
  SELECT SUM(size) AS bytes, COUNT(*) AS n FROM packets WHERE proto = 'tcp' AND network(dst) = '10.0.2.0/23'
  GROUP BY window(ts, '10 seconds', '1 second') WITH ERROR 5%;

CREATE QUERY web_bytes AS
  SELECT SUM(size) AS bytes FROM packets WHERE dport = 80
  GROUP BY window(ts, '10 seconds', '1 second') WITH ERROR 5% CONFIDENCE 99% WEIGHT 2;

CREATE QUERY all_packets AS
  SELECT COUNT(*) AS n FROM packets
  GROUP BY window(ts, '5 seconds', '1 second') WITH ERROR 1%;

CREATE QUERY dns_spread AS
  SELECT STDDEV(size) AS sd FROM packets WHERE dport = 53
  GROUP BY window(ts, '10 seconds', '2 seconds') WITH ERROR 10%;

CREATE QUERY top_talkers AS
  SELECT src, SUM(size) AS bytes FROM packets
  GROUP BY window(ts, '5 seconds'), src HAVING SUM(size) > 3000000 WITH EXACT;

CREATE VIEW spread AS
  SELECT MAX(size) - MIN(size) AS d, COUNT(*) AS n FROM packets WHERE proto = 'tcp'
  GROUP BY window(ts, '1 second');

CREATE QUERY busy_seconds AS
  SELECT COUNT(*) AS n FROM spread WHERE n > 30000
  GROUP BY window(ts, '10 seconds', '1 second') WITH SUBSET GAP 10;

-- The queues of forty routers, of which each says once a second how long it is; one says nothing from second 20 to 35. Of
-- current values an answer is delivered when it has probably drifted, and goes on as a model while a router is silent.
CREATE STREAM queues (ts TIMESTAMP, key STRING, value DOUBLE, volume INT)
  USING walks OPTIONS (seed '7', keys '40', sigma '0.8', drift '0.1', correlation '0.3', silent 'k3:20:15', speed '1')
  KEY key TIMESTAMP BY ts;

CREATE QUERY delay AS
  SELECT AVG(value) AS delay, max_over(AVG(value), '30 seconds') AS worst FROM LATEST(queues)
  WITH DRIFT 1 BELIEF 90%;
