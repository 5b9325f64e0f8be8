"""An agent in a program: a small fleet of simulated sensors; what leaves its bound goes to the hub.

Side by side, each in a terminal of its own, in any order:

    slackwater hub --listen 127.0.0.1:7400 --directory .slackwater/hub
    python examples/agent.py --seconds 60
    slackwater run examples/sensors.sql --answers -

Nothing is sent before the run has asked for something. A hub with a token finds it in SLACKWATER_TOKEN.
"""

from __future__ import annotations

import argparse
import os
import random
import time

from slackwater import Agent
from slackwater.edge.agent import AgentCounters

STEP_S = 0.1
TELL_S = 5.0


class Sensor:
    """A temperature that wanders, and the power that goes with it."""

    def __init__(self, number: int) -> None:
        self.name = f"sensor-{number}"
        self._random = random.Random(number)
        self._temperature = 20.0 + number

    def measure(self) -> dict[str, float]:
        self._temperature += self._random.gauss(0.0, 0.05)
        return {"temperature": self._temperature, "power": 100.0 + 5.0 * self._temperature}


def main(hub: str, *, seconds: float = 60.0, sensors: int = 10, stream: str = "sensors") -> AgentCounters:
    """Measure for so long; the last sensor is taken away when half of the time is over."""
    fleet = [Sensor(number) for number in range(sensors)]
    begun = told = time.monotonic()
    # entering connects; without it, or `start`, nothing would ever be sent
    with Agent(stream, hub=hub, name="fleet", token=os.environ.get("SLACKWATER_TOKEN", "")) as agent:
        while (now := time.monotonic()) < begun + seconds:
            if len(fleet) == sensors > 1 and now > begun + seconds / 2:
                agent.withdraw(fleet.pop().name)
            agent.update_many([sensor.name for sensor in fleet], [sensor.measure() for sensor in fleet])
            if now > told + TELL_S:
                told = now
                print(agent.trouble or shown(agent.counters))
            time.sleep(STEP_S)
    # leaving has waited for what was under way
    return agent.counters


def shown(counters: AgentCounters) -> str:
    return f"{counters.offered} values measured, {counters.passed} left their bounds"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A small fleet of simulated sensors.")
    parser.add_argument("--hub", default="ws://127.0.0.1:7400", help="where the hub is")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long it measures")
    parser.add_argument("--sensors", type=int, default=10, help="how many there are")
    chosen = parser.parse_args()
    print(shown(main(chosen.hub, seconds=chosen.seconds, sensors=chosen.sensors)))
