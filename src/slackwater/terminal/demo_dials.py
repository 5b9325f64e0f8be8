"""What moves the demo: the story while it is told, else the visitor. The sliders are these dials."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from slackwater.edge.clock import now_micros
from slackwater.errors import SlackwaterError
from slackwater.service.models import Knobs, KnobsWanted
from slackwater.terminal.demo_load import LEAST, MOST, Batch
from slackwater.terminal.demo_story import OVER, STORY, WARMING, YOURS, Chapter, Moment, moment

TICK_S = 0.25
WARM_FACTOR = 0.25
WARM_BATCHES = 6
WARM_QUICK = 3
"""So many batches in a row are quick when it is warm."""
WARM_SHARE = 0.5
"""Of an interval, what a quick batch takes at most."""
WARM_PATIENCE_S = 45.0
"""So long after the first batch the story begins, however slow the machine is."""
CALM_MULTIPLE = 0.7
"""Calm is the usual rate, or so much of the capacity on a machine for which that is too much."""
CALM_LEAST = 0.25
RISE = 12.0
"""Times calm that a burst begins with at most: what it takes is known better once a batch of it is done."""
LOWEST = 5.0
"""Times calm that a burst is at least: where a busy machine has no capacity left, anything is too much."""
HIGHEST = 50.0
"""The factor of a burst at most: rows have to be made, too."""
SETTLING_S = 12.0
"""How long into a burst its rate may still change much: by then they are known well."""
STEP, FINE = 1.6, 1.1
"""By how much the rate rises at most after a batch, until then and later; by how much it falls later."""
DEBOUNCE_S = 0.5
CHAPTERS = 200
"""Chapters that are remembered: the story has a few, and can be told again and again."""
logger = logging.getLogger(__name__)


class Load(Protocol):
    """What is known of the packets' batches."""

    @property
    def last(self) -> Batch | None: ...

    def rows_for(self, multiple: float) -> float | None: ...


class DemoDials:
    """Sets the factor of the packets' rate, the contracts' tolerance, and who is interrupted.

    ``rate`` is rows a second at factor 1 and ``interval`` the seconds between batches. ``set_load``,
    ``set_tolerance`` and ``interrupt`` do what is decided here; ``tick`` decides, a few times a second.
    """

    def __init__(
        self,
        load: Load,
        *,
        rate: float,
        interval: float,
        set_load: Callable[[float], None],
        set_tolerance: Callable[[float], None],
        interrupt: Callable[[bool], None],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], int] = now_micros,
    ) -> None:
        self._load, self._rate, self._interval = load, rate, interval
        self._set_load, self._set_tolerance, self._interrupt = set_load, set_tolerance, interrupt
        self._clock, self._now = clock, now
        self._lock = threading.RLock()
        self._first: float | None = None
        """When the first batch was done."""
        self._begun: float | None = None
        """When the story began; None while it is warming up."""
        self._story = True
        self._factor = WARM_FACTOR
        self._usual: float | None = None
        """The factor of calm, once it is known."""
        self._tolerance = self._tolerated = 1.0
        """As the slider stands, and as contracts are."""
        self._moved = -DEBOUNCE_S
        self._interrupted = False
        self._chapter = WARMING
        self._quick = 0
        self._seen = -1
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-story", daemon=True)
        self.chapters: list[tuple[int, Chapter]] = []
        """The newest chapters, each since when, in microseconds since the epoch."""
        set_load(self._factor)

    # the sliders

    def knobs(self) -> Knobs:
        with self._lock:
            return Knobs(
                load=self._factor,
                tolerance=self._tolerance,
                story=self._story and self._chapter is not OVER,
                chapter=self._chapter.text,
            )

    def turn(self, wanted: KnobsWanted) -> Knobs:
        """Move the sliders; who moves the load takes it out of the story's hands."""
        with self._lock:
            if wanted.story and (not self._story or self._chapter is OVER):
                # from its beginning; one that is being told goes on
                self._story = True
                self._begun = self._clock() if self._begun is not None else None
                self._tell(self._moment(), fresh=False)
            if wanted.story is False or (wanted.load is not None and not wanted.story):
                self._story = False
                self._enter(YOURS)
                self._let_go()
            if wanted.load is not None and not self._story:
                self._apply(wanted.load)
            if wanted.tolerance is not None:
                self._tolerance, self._moved = wanted.tolerance, self._clock()
            return self.knobs()

    # the story

    def tick(self) -> None:
        """Look where the story is, and do what it says."""
        with self._lock:
            now, last = self._clock(), self._load.last
            fresh = last is not None and last.number > self._seen
            if last is not None and fresh:
                self._seen = last.number
                self._first = now if self._first is None else self._first
                self._quick = self._quick + 1 if last.seconds <= WARM_SHARE * self._interval else 0
            if self._begun is None and self._warm(now):
                self._begun = now
            if self._story:
                self._tell(self._moment(), fresh)
            tolerance = self._tolerance
            due = tolerance != self._tolerated and now - self._moved >= DEBOUNCE_S
        if due:
            # it may take a second, for which nobody who looks at the sliders should wait
            self._set_tolerance(tolerance)
            self._tolerated = tolerance

    def _warm(self, now: float) -> bool:
        if self._first is not None and now - self._first >= WARM_PATIENCE_S:
            return True
        return self._seen >= WARM_BATCHES and self._quick >= WARM_QUICK

    def _moment(self) -> Moment:
        return Moment(WARMING, 0.0) if self._begun is None else moment(self._clock() - self._begun)

    def _tell(self, told: Moment, fresh: bool) -> None:
        entered = told.chapter is not self._chapter
        if entered or not self.chapters:
            self._enter(told.chapter)
        if told.chapter.interrupted != self._interrupted:
            self._interrupted = told.chapter.interrupted
            self._interrupt(self._interrupted)
        if told.chapter is WARMING:
            return
        last = self._load.last
        # what a batch of the chapter before has cost says nothing new
        seen = fresh and last is not None and last.newest > self.chapters[-1][0]
        if told.chapter.multiple is None:
            if entered:
                self._apply(self._calm())
            elif seen and self._usual is not None and told.chapter is STORY[0]:
                self._apply(self._calmer(self._usual))
            return
        wanted = self._factor_for(told.chapter.multiple) if entered or seen else None
        if wanted is not None:
            usual = self._usual or 1.0
            settling = told.passed <= SETTLING_S
            most = RISE * usual if entered else self._factor * (STEP if settling else FINE)
            least = LOWEST * usual if settling else self._factor / FINE
            self._apply(max(min(max(wanted, least), most, HIGHEST), LOWEST * usual))

    def _calm(self) -> float:
        """The factor of calm, found when the story begins and kept: it is to be as calm as before."""
        if self._usual is None:
            quiet = self._factor_for(CALM_MULTIPLE)
            if quiet is None:
                return 1.0
            self._usual = min(1.0, max(quiet, CALM_LEAST))
        return self._usual

    def _calmer(self, usual: float) -> float:
        """The factor of calm after a batch of it: less where that was too much."""
        most = self._factor_for(1.0)
        if most is not None and most < usual:
            self._usual = max(CALM_MULTIPLE * most, usual / STEP, CALM_LEAST)
        return self._usual or usual

    def _factor_for(self, multiple: float) -> float | None:
        rows = self._load.rows_for(multiple)
        return None if rows is None else rows / (self._rate * self._interval)

    def _apply(self, factor: float) -> None:
        self._factor = float(f"{min(max(factor, LEAST), MOST):.3g}")
        self._set_load(self._factor)

    def _enter(self, chapter: Chapter) -> None:
        if self.chapters and chapter is self._chapter:
            # a slider that is moved on begins nothing new
            return
        self._chapter = chapter
        self.chapters.append((self._now(), chapter))
        del self.chapters[:-CHAPTERS]

    def _let_go(self) -> None:
        if self._interrupted:
            self._interrupted = False
            self._interrupt(False)

    @property
    def over(self) -> bool:
        """Whether the story has been told."""
        with self._lock:
            return self._chapter is OVER

    @property
    def told(self) -> bool:
        """Whether the story has been told once, whatever the sliders did after it."""
        with self._lock:
            return any(chapter is OVER for _, chapter in self.chapters)

    # the thread

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stopping.wait(TICK_S):
            try:
                self.tick()
            except SlackwaterError as error:
                # a contract that cannot be altered now, as that of a run that stops, ends no story
                logger.warning("the demo's sliders: %s", error)
