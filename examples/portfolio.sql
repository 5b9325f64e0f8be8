-- Queries over current values: a minute of two hundred prices that wander, two seconds of it in one.
--   slackwater run examples/portfolio.sql --answers answers.jsonl
-- Paths are relative to where the command runs: the root of the repository. From second 30 to second 40 the key
-- k3, which three accounts hold, says nothing: what depends on it is modelled meanwhile (`how` in the answers).
CREATE STREAM prices (ts TIMESTAMP, key STRING, value DOUBLE, volume INT)
  USING walks OPTIONS (
    seed '7', keys '200', sigma '0.5', drift '0.1', correlation '0.3', silent 'k3:30:10',
    length '60 seconds', speed '2')
  KEY key TIMESTAMP BY ts;

CREATE TABLE holdings (account STRING, key STRING, qty DOUBLE)
  USING csv OPTIONS (path 'examples/holdings.csv', header 'true');

-- What all prices are now, at every tick: once a second where a stream has no TICK.
CREATE QUERY market AS
  SELECT AVG(value) AS average, COUNT(*) AS keys FROM LATEST(prices)
  WITH EXACT;

-- The keys' largest and smallest: no drift follows for those, so EXACT.
CREATE QUERY extremes AS
  SELECT MAX(value) AS dearest, MIN(value) AS cheapest FROM LATEST(prices)
  WITH EXACT;

-- What each account is worth, answered anew only when it has probably moved by more than one percent. A key may
-- be in several accounts.
CREATE QUERY worth AS
  SELECT account, SUM(qty * value) AS worth FROM LATEST(prices) JOIN holdings USING (key)
  GROUP BY account
  WITH DRIFT 1% BELIEF 90%;

-- The most that each account was worth within the last twenty seconds.
CREATE QUERY peak AS
  SELECT account, max_over(SUM(qty * value), '20 seconds') AS peak FROM LATEST(prices) JOIN holdings USING (key)
  GROUP BY account
  WITH DRIFT 1% BELIEF 90%;

-- Whoever reads this adds slope times the seconds since: only what differs from the trend is waited for.
CREATE QUERY trend AS
  SELECT AVG(value) AS average FROM LATEST(prices)
  WITH DRIFT 0.5 BELIEF 95% EXTRAPOLATE;

-- The rows of the same stream go through windows as well.
CREATE QUERY turnover AS
  SELECT SUM(volume) AS volume FROM prices GROUP BY window(ts, '10 seconds')
  WITH ERROR 5%;
