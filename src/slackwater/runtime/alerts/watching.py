"""One alert: the groups in which it is raised, and what the answers of a turn change in that.

An alert is raised in a group by an answer that is beyond its limit, and cleared by one of which nothing is.
What lies on both sides of the limit changes nothing, nor does an answer without an interval. So a CERTAINLY
alert does not flap where an interval grows and shrinks around a limit.

A turn is read twice. The first reading finds groups that are newly beyond the limit, and costs a comparison
of each answer. Only where there are some, or some were raised before, a second one follows these groups.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from slackwater.language.statements import CreateAlert
from slackwater.runtime.alerts.comparing import BACK, BEYOND, UNCLEAR, Verdicts, verdicts, why_not_comparable
from slackwater.runtime.alerts.events import Edge, Reason, State
from slackwater.runtime.alerts.groups import Groups, Ints, group_texts
from slackwater.runtime.alerts.silence import Stretch
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import Answer, How

RAISED_AT_MOST = 2_000
"""Groups in which one alert is raised at a time; it is not raised in more."""
SURELY = 3
"""What a window counts for a group that is missing from it, where the answers of the window are exact."""
MISSING: dict[How, int] = {"exact": SURELY, "subset": SURELY, "sampled": 1}
"""A sample may have missed a group: it is missing when it is in none of three. Others say nothing of it."""
LEAST_PATIENCE, MOST_PATIENCE = SURELY, 1_000 * SURELY
"""How much must have been missed until a group counts as gone: above a limit nothing is not, below it is."""
NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Raised:
    """A group in which an alert is raised."""

    since: int
    """The moment of the answer that raised it."""
    missed: int
    line: str
    """An answer with the keys of the group, as JSON."""


@dataclass(frozen=True)
class Standing:
    """What is known of an alert between two turns."""

    watches: str = ""
    """What it looks at: another query or column of the same name has other groups."""
    stream: str = ""
    reached: int = NEVER
    """The moment of the newest answer."""
    events: int = 0
    raised: dict[str, Raised] = field(default_factory=dict)
    beyond: int = 0
    """Groups in which it was not raised in the last turn for want of room."""
    trouble: str = ""


@dataclass
class Look:
    """One alert during one turn."""

    alert: CreateAlert
    standing: Standing
    in_order: bool
    """Whether windows close in the order of their ends, so that an older one is none to go by."""
    counts_all: bool = True
    """Whether a group without an answer has no rows: under HAVING it may have some."""
    room: int = RAISED_AT_MOST
    """Groups in which it may be raised."""
    stretch: Stretch | None = None
    """Of a query without groups: the windows that have closed."""
    zero: bool = False
    """Whether a window without rows means 0, and not that nothing is known."""

    def __post_init__(self) -> None:
        self._fresh: set[str] = set()
        self._newest = NEVER
        self._trouble = ""
        self._groups = Groups([])
        self._raised = np.zeros(0, dtype=bool)
        self._seen: Ints = np.zeros(0, dtype=np.int64)
        self._kept: list[_Kept] = []
        self._windows: dict[int, int] = {}
        self._last: tuple[int, AnswerBatch] | None = None
        self._beyond = 0
        self._said: list[Ints] = []
        """Windows of the stretch that have an answer, whatever it is."""
        self._zeros: AnswerBatch | None = None

    # --- the first reading -----------------------------------------------------------------------

    def find(self, batch: AnswerBatch) -> None:
        """Take note of the groups that are beyond the limit."""
        if self.stretch is not None and batch.window_start is not None:
            self._said.append(self.stretch.numbers(batch.window_start))
        if batch.how == "suspended" or not len(batch):
            return
        self._trouble = why_not_comparable(batch)
        moments = _moments(batch)
        self._newest = max(self._newest, int(moments.max()))
        places = np.flatnonzero(self._verdicts(batch, moments) == BEYOND)
        if len(places):
            names = pc.unique(group_texts(batch.keys, places)).to_pylist()
            self._fresh.update(name for name in names if name not in self.standing.raised)

    def listen(self) -> None:
        """After the answers: take the windows that have none as what they are."""
        if self.stretch is None or not self.zero:
            return
        silent = self.stretch.silent(self._answered())
        if len(silent):
            self._zeros = self.stretch.zeros(self.alert.column, silent)
            self.find(self._zeros)

    def _answered(self) -> Ints:
        """The windows that have an answer, in order."""
        found: Ints = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *self._said]))
        return found

    @property
    def follows(self) -> bool:
        """Whether there is something to look for in a second reading."""
        return bool(self._fresh or self.standing.raised)

    def begin(self) -> None:
        """Between the readings: which groups are followed."""
        room = max(0, self.room - len(self.standing.raised))
        # the same ones whenever the turn is run again, in whatever order its answers come
        fresh = sorted(self._fresh)
        self._beyond = max(0, len(fresh) - room)
        self._groups = Groups([*self.standing.raised, *fresh[:room]])
        self._raised = np.arange(len(self._groups)) < len(self.standing.raised)
        self._seen = np.full(len(self._groups), NEVER)

    # --- the second reading ----------------------------------------------------------------------

    def follow_silence(self) -> None:
        """Take what windows without an answer say."""
        if self._zeros is not None:
            self.follow(self._zeros, "missing")

    def follow(self, batch: AnswerBatch, reason: Reason = "answer") -> None:
        """Take what the followed groups have in a batch."""
        if batch.how == "suspended" or not len(batch):
            return
        moments = _moments(batch)
        self._note_windows(batch, moments)
        places, groups = self._groups.find(batch.keys, len(batch))
        np.maximum.at(self._seen, groups, moments[places])
        found = self._verdicts(batch, moments)[places]
        # an answer that is older than the one which has raised it does not clear it
        since = np.array([r.since for r in self.standing.raised.values()] + [NEVER])
        since = since[np.where(self._raised[groups], groups, len(since) - 1)]
        chosen = (found != UNCLEAR) & (moments[places] >= since)
        if chosen.any():
            part = batch.take(places[chosen].tolist())
            self._kept.append(_Kept(part, moments[places[chosen]], groups[chosen], found[chosen], reason))

    def _note_windows(self, batch: AnswerBatch, moments: Ints) -> None:
        weight = MISSING.get(batch.how, 0)
        if not weight or not batch.keys:
            return
        for moment in np.unique(moments).tolist():
            self._windows[moment] = min(weight, self._windows.get(moment, weight))
        place = int(moments.argmax())
        if self._last is None or moments[place] > self._last[0]:
            self._last = int(moments[place]), batch.slice(place, place + 1)

    def _verdicts(self, batch: AnswerBatch, moments: Ints) -> Verdicts:
        found = verdicts(batch, self.alert)
        if self.in_order:
            found[moments < self.standing.reached] = UNCLEAR
        return found

    # --- afterwards ------------------------------------------------------------------------------

    def settle(self) -> tuple[Standing, list[Edge]]:
        """The alert after the turn, and where it has changed its state on the way, oldest first."""
        raised = dict(self.standing.raised)
        edges = self._edges()
        for edge in edges:
            if edge.state == "raised":
                raised[edge.group] = Raised(edge.moment, 0, _key_line(edge.answer))
            else:
                raised.pop(edge.group, None)
        edges += self._gone(raised) if self.stretch is None else self._silenced(raised, self.stretch)
        standing = replace(
            self.standing,
            reached=max(self.standing.reached, self._newest),
            events=self.standing.events + len(edges),
            # the same one where nothing has changed: it need not be written again
            raised=raised if raised != self.standing.raised else self.standing.raised,
            beyond=self._beyond,
            trouble=self._trouble if self._newest > NEVER else self.standing.trouble,
        )
        return standing, edges

    def _edges(self) -> list[Edge]:
        if not self._kept:
            return []
        moments = np.concatenate([k.moments for k in self._kept])
        groups = np.concatenate([k.groups for k in self._kept])
        found = np.concatenate([k.found for k in self._kept])
        # stable: of equal moments the later answer counts
        order = np.lexsort((moments, groups))
        groups, found = groups[order], found[order]
        before = np.concatenate([[UNCLEAR], found[:-1]])
        first = np.concatenate([[True], groups[1:] != groups[:-1]])
        before[first] = np.where(self._raised[groups[first]], BEYOND, BACK)
        changed = order[found != before]
        changed = changed[np.argsort(moments[changed], kind="stable")]
        sizes = np.cumsum([0, *(len(k.moments) for k in self._kept)])
        edges = []
        for place in changed.tolist():
            number = int(np.searchsorted(sizes, place, side="right")) - 1
            kept, row = self._kept[number], place - int(sizes[number])
            answer = next(kept.batch.slice(row, row + 1).answers())
            group = self._groups.texts[int(kept.groups[row])]
            raised = kept.found[row] == BEYOND
            state: State = "raised" if raised else "cleared"
            edges.append(Edge(group, int(kept.moments[row]), state, answer, kept.reason))
        return edges

    def _gone(self, raised: dict[str, Raised]) -> list[Edge]:
        """Clear the groups that answers are missing of, and count how much has been missed of others."""
        if not self._windows or self._last is None:
            return []
        moments = np.array(sorted(self._windows), dtype=np.int64)
        total = np.concatenate([[0], np.cumsum([self._windows[m] for m in moments.tolist()])])
        missed = total[-1] - total[np.searchsorted(moments, self._seen, side="right")]
        edges = []
        # most groups have been seen in the last window, and had been before
        stays = (missed == 0) & (np.array([self._missed(g) for g in self._groups.texts], dtype=np.int64) == 0)
        for number in np.flatnonzero(~stays).tolist():
            group = self._groups.texts[number]
            known = raised.get(group)
            if known is None:
                continue
            earlier = known.missed if self._seen[number] == NEVER else 0
            known = raised[group] = replace(known, missed=earlier + int(missed[number]))
            if known.missed >= self._patience:
                del raised[group]
                moment, last = self._last
                edges.append(Edge(group, moment, "cleared", self._missing(last, known), "missing"))
        return edges

    def _silenced(self, raised: dict[str, Raised], stretch: Stretch) -> list[Edge]:
        """Clear what windows without an answer do not speak of any more; of a COUNT they do: it is 0."""
        known = raised.get("")
        if known is None or self.zero:
            return []
        said = self._answered()
        seen = int(self._seen[0])
        after = None if seen == NEVER else int(stretch.numbers(np.array([seen - stretch.window.size]))[0])
        missed = SURELY * stretch.without_answer(after, said)
        earlier = known.missed if after is None else 0
        known = replace(known, missed=earlier + missed)
        raised[""] = known
        if not missed or known.missed < self._patience:
            return []
        del raised[""]
        number = stretch.nth_without_answer(max(1, -((earlier - self._patience) // SURELY)), after, said)
        answer = stretch.nothing(self.alert.column, number, 0 if self.counts_all else None)
        moment = number * stretch.window.slide + stretch.window.offset + stretch.window.size
        return [Edge("", moment, "cleared", answer, "missing")]

    @property
    def _patience(self) -> int:
        return LEAST_PATIENCE if self.alert.comparison in (">", ">=") else MOST_PATIENCE

    def _missing(self, last: AnswerBatch, known: Raised) -> Answer:
        """What the last window says of a group that is missing from it."""
        answer = next(last.answers())
        keys = Answer.from_json(known.line).keys
        rows = 0 if self.counts_all else None
        return replace(answer, keys=keys, value=None, low=None, high=None, rows=rows, slope=None)

    def _missed(self, group: str) -> int:
        known = self.standing.raised.get(group)
        return 0 if known is None else known.missed


@dataclass(frozen=True, eq=False)
class _Kept:
    """Answers that may change a state, of one batch."""

    batch: AnswerBatch
    moments: Ints
    groups: Ints
    found: npt.NDArray[np.int8]
    reason: Reason


def _moments(batch: AnswerBatch) -> Ints:
    """The ends of windows, or the times that answers speak of."""
    found = batch.window_end if batch.window_end is not None else batch.at
    return np.zeros(len(batch), dtype=np.int64) if found is None else found


def _key_line(answer: Answer) -> str:
    return replace(answer, value=None, low=None, high=None, slope=None).to_json_line()
