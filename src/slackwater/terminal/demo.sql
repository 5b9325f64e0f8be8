-- What slackwater demo runs: one query of every contract at least, over streams that are made up as they go.

-- Network traffic, bursty: the story, or the slider on the page, says how much of it there is.
CREATE STREAM packets (ts TIMESTAMP, src STRING, dst STRING, sport INT, dport INT, proto STRING, size INT)
  USING traffic TIMESTAMP BY ts;

-- All of it, exactly, whatever the load: cheap enough to be had of every packet.
CREATE QUERY all_traffic AS
  SELECT SUM(size) AS bytes, COUNT(*) AS n FROM packets
  GROUP BY window(ts, '2 seconds', '1 second') WITH EXACT;

-- network() finds the network of an address by its longest prefix: a Python function, the costliest operator
-- here. When more comes than this machine can do, those who use it are thinned out first.
CREATE QUERY office_bytes AS
  SELECT SUM(size) AS bytes FROM packets WHERE proto = 'tcp' AND network(dst) = '10.0.2.0/23'
  GROUP BY window(ts, '5 seconds', '1 second') WITH ERROR 20%;

-- Told to a webhook when it is certain: the whole interval is above the limit.
CREATE ALERT office_busy ON office_bytes WHEN bytes > 5e5 CERTAINLY TO '{webhook}/office';

CREATE QUERY web_bytes AS
  SELECT SUM(size) AS bytes FROM packets WHERE dport = 80
  GROUP BY window(ts, '5 seconds', '1 second') WITH ERROR 5% CONFIDENCE 99% WEIGHT 2;

CREATE QUERY dns_spread AS
  SELECT STDDEV(size) AS sd FROM packets WHERE dport = 53
  GROUP BY window(ts, '5 seconds', '1 second') WITH ERROR 10%;

-- How many senders the guests hear from cannot be told from a sample. Whole windows may be left out, never more
-- than five in a row; those that come are exact.
CREATE QUERY guest_senders AS
  SELECT COUNT(DISTINCT src) AS senders FROM packets WHERE proto = 'udp' AND network(dst) = '10.0.4.0/22'
  GROUP BY window(ts, '1 second') WITH SUBSET GAP 5;

-- The load of eight services on each of six hosts. An agent on each host sends what leaves its bound, and bounds
-- are as wide as these answers allow: the truth is in the interval at any time.
CREATE STREAM hosts (ts TIMESTAMP, host STRING, service STRING, load DOUBLE)
  USING agents OPTIONS (hub '{hub}') KEY (host, service) TIMESTAMP BY ts TOLERANCE 2 SECONDS;

CREATE QUERY total_load AS
  SELECT SUM(load) AS load FROM LATEST(hosts) WITH PRECISION 40;

CREATE QUERY host_load AS
  SELECT host, SUM(load) AS load FROM LATEST(hosts) GROUP BY host WITH PRECISION 12;

-- The queues of forty routers, of which each says once a second how long it is. An answer is delivered when it has
-- probably drifted, and goes on as a model while a router is silent.
CREATE STREAM queues (ts TIMESTAMP, key STRING, value DOUBLE)
  USING walks OPTIONS (seed '7', keys '40', sigma '0.8', drift '0.1', correlation '0.3') KEY key TIMESTAMP BY ts;

CREATE QUERY delay AS
  SELECT AVG(value) AS delay FROM LATEST(queues) WITH DRIFT 1 BELIEF 90%;
