-- What the simulated sensors of agent.py measure, as intervals; the note there says what runs beside it.
CREATE STREAM sensors (ts TIMESTAMP, sensor STRING, temperature DOUBLE, power DOUBLE)
  USING agents OPTIONS (hub 'ws://127.0.0.1:7400') KEY sensor TIMESTAMP BY ts TOLERANCE 1 SECOND;

-- what all of them take together, never more than 20 W apart from the truth
CREATE QUERY power AS
  SELECT SUM(power) AS watts, COUNT(*) AS sensors FROM LATEST(sensors) WITH PRECISION 40;

CREATE QUERY warmest AS
  SELECT MAX(temperature) AS degrees FROM LATEST(sensors) WITH PRECISION 1;
