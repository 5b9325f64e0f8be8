"""The agent as a command: one source of readings, fed to an `Agent` until it ends or is told to stop."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import typer

from slackwater.edge.agent import Agent
from slackwater.edge.clock import now_micros
from slackwater.edge.measures import SECOND, MovingRate
from slackwater.edge.messages import Declared
from slackwater.edge.readings import (
    LineReader,
    Pump,
    Reading,
    command_lines,
    command_words,
    counter_readings,
    tail_lines,
)
from slackwater.edge.terms import Terms
from slackwater.edge.uplink import STOPPED
from slackwater.errors import SourceError

LOOK_S = 0.2
FLUSH_S = 10.0
UNDECLARED_S = 5.0
"""After which it is said that no query has asked for the stream yet."""


@dataclass(frozen=True)
class Choice:
    """What is read, and what is made of it; exactly one source, the standard input if no other."""

    counters: bool
    command: str | None
    tail: Path | None
    from_start: bool
    every: float | None
    moving_rate: float | None


def complain(text: str) -> None:
    typer.echo(text, err=True)


def run_agent(
    choice: Choice,
    *,
    stream: str,
    hub: str,
    name: str | None,
    token: str,
    ca: Path | None,
    stopped: threading.Event,
    clock: Callable[[], int] = now_micros,
    cost: float = 1.0,
    terms: Mapping[Any, Terms] | None = None,
) -> bool:
    """Run until the source ends or ``stopped`` is set; whether the hub has all that left its bounds."""
    if choice.moving_rate is not None and choice.moving_rate % 1:
        raise SourceError(f"--moving-rate: expected whole seconds, got {choice.moving_rate}s")
    if choice.command is not None:
        # what is wrong with it is told before a hub is looked for
        command_words(choice.command)
    # the file is opened now: what is appended while the hub is awaited counts
    tailed = None if choice.tail is None else Pump(lambda: _tail(choice, stopped))
    agent = Agent(stream, hub=hub, token=token, name=name, ca=ca, clock=clock, cost=cost, terms=terms).start()
    try:
        connection = Connection(agent, hub, complain)
        declared = _declared(agent, connection, stopped)
        if declared is None:
            return True
        rate = None
        if choice.moving_rate is not None:
            rate = MovingRate(columns=len(declared.columns), window=round(choice.moving_rate) * SECOND)
        reader = LineReader(declared, complain)
        pump = tailed or Pump(lambda: _source(choice, declared, stopped, clock))
        _feed(agent, connection, pump, reader, rate, declared, stopped, clock)
        if reader.bad:
            complain(f"{reader.bad} of {reader.lines} lines could not be used")
    finally:
        complete = agent.stop(FLUSH_S)
    if not complete:
        counters = agent.counters
        complain(
            f"stopped with {counters.waiting} rows and {counters.under_way} batches that the hub may not have"
            + (f": {agent.trouble}" if agent.trouble else "")
        )
    return complete


class Connection:
    """Says why an agent has no connection, each reason once, and that it has one again."""

    def __init__(self, agent: Agent, hub: str, complain: Callable[[str], None]) -> None:
        self._agent = agent
        self._hub = hub
        self._complain = complain
        self._told = ""
        self._connections = 0

    def tell(self) -> None:
        """Say what is new."""
        trouble, counters = self._agent.trouble, self._agent.counters
        if trouble and trouble != self._told:
            self._complain(trouble if trouble == STOPPED else f"{trouble}; trying again")
            self._told = trouble
        elif counters.connected and counters.connections > self._connections:
            # a short trouble may have passed between two looks
            if self._told or counters.connections > 1:
                again = " again" if counters.connections > 1 else ""
                self._complain(f"connected to {self._hub}{again}")
            self._told, self._connections = "", counters.connections


def _declared(agent: Agent, connection: Connection, stopped: threading.Event) -> Declared | None:
    """Wait for the shape of the stream: without it a line's columns cannot be told apart."""
    waited = 0.0
    told = False
    while not stopped.is_set():
        if (declared := agent.declared(LOOK_S)) is not None:
            if told:
                complain(f"stream {agent.stream!r} has been declared")
            return declared
        waited += LOOK_S
        connection.tell()
        if agent.connected and waited >= UNDECLARED_S and not told:
            told = True
            complain(f"connected; waiting until a query declares stream {agent.stream!r}")
    return None


def _tail(choice: Choice, stopped: threading.Event) -> Iterator[Any]:
    assert choice.tail is not None
    return tail_lines(choice.tail, stopped.wait, complain, from_start=choice.from_start)


def _source(
    choice: Choice, declared: Declared, stopped: threading.Event, clock: Callable[[], int]
) -> Iterator[Any]:
    if choice.counters:
        every = choice.every or 1.0
        per_second = choice.moving_rate is None
        return counter_readings(declared, stopped.wait, clock=clock, every=every, per_second=per_second)
    if choice.command is not None:
        return command_lines(choice.command, choice.every, stopped.wait, complain)
    return iter(sys.stdin.buffer)


def _feed(
    agent: Agent,
    connection: Connection,
    pump: Pump,
    reader: LineReader,
    rate: MovingRate | None,
    declared: Declared,
    stopped: threading.Event,
    clock: Callable[[], int],
) -> None:
    while not stopped.is_set():
        items = pump.take(LOOK_S)
        if items is None:
            break
        connection.tell()
        if rate is not None:
            _tell_rates(agent, rate, declared, clock())
        lines = [item for item in items if isinstance(item, bytes)]
        counted: list[list[Reading]] = [item for item in items if isinstance(item, list)]
        for key, values in chain(reader.read(lines), chain.from_iterable(counted)):
            if values is None:
                if rate is not None:
                    rate.forget(key)
                agent.withdraw(key)
            elif rate is None:
                agent.update(key, values)
            else:
                now = clock()
                _tell_rates(agent, rate, declared, now)
                try:
                    rate.add(key, [_amount(values.get(column)) for column in declared.columns], now)
                except OverflowError as error:
                    reader.pass_over(error)


def _amount(value: float | None) -> float:
    return 0.0 if value is None else value


def _tell_rates(agent: Agent, rate: MovingRate, declared: Declared, now: int) -> None:
    for at, keys, values in rate.steps(now):
        agent.update_many(keys, values, at=at)
