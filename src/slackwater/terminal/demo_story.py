"""The demo's story: calm, a burst to five times the capacity, calm; an agent is lost and comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

REMEMBERED = 3_600
"""Seconds, and batches, that a demo remembers. The story is told in minutes, and what is left running for
days is to take no more memory than that."""


def forget(kept: dict[int, Any]) -> None:
    """Of what was made second by second let go of what was asked for first."""
    while len(kept) > REMEMBERED:
        del kept[next(iter(kept))]


@dataclass(frozen=True)
class Chapter:
    """A part of the story, and what it says of itself in a sentence."""

    name: str
    seconds: float
    text: str
    multiple: float | None = None
    """How many times the capacity the load is to be; None: calm."""
    interrupted: bool = False
    """Whether an agent is away, and a router silent."""


WARMING = Chapter(
    "warming up", 0.0, "Warming up: Spark loads and compiles; the story begins when batches are quick."
)
STORY = (
    Chapter("calm", 20.0, "Calm: the machine keeps up, and every answer is exact."),
    Chapter(
        "burst",
        25.0,
        "Burst: five times as much as the machine can do. Answers get intervals instead of getting late.",
        multiple=5.0,
    ),
    Chapter("calm again", 12.0, "Calm again: intervals close, and answers are exact as before."),
    Chapter(
        "interrupted",
        6.0,
        "An agent is lost and a router is silent: answers that rest on them say so.",
        interrupted=True,
    ),
    Chapter("back", 12.0, "Both are back. All is as it was, and nobody had to do anything."),
)
OVER = Chapter(
    "over", 0.0, "The story is over. Move the sliders: how much comes, and how much loss is tolerated."
)
YOURS = Chapter("yours", 0.0, "The sliders are yours. Switch the story on to see it once more.")


@dataclass(frozen=True)
class Moment:
    """Where the story is."""

    chapter: Chapter
    passed: float
    """Seconds since the chapter began."""


def length(story: Sequence[Chapter] = STORY) -> float:
    """How long it takes to tell.

    >>> length()
    75.0
    """
    return sum(chapter.seconds for chapter in story)


def moment(passed: float, story: Sequence[Chapter] = STORY) -> Moment:
    """Where the story is after so many seconds.

    >>> moment(25).chapter.name, moment(25).passed, moment(75).chapter.name
    ('burst', 5.0, 'over')
    """
    for chapter in story:
        if passed < chapter.seconds:
            return Moment(chapter, passed)
        passed -= chapter.seconds
    return Moment(OVER, passed)
