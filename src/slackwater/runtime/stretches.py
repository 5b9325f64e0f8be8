"""Which windows have closed in a turn, with answers or without: alerts are told of silence by it."""

from __future__ import annotations

from slackwater.plan.model import Step, TimeWindow
from slackwater.plan.panes import AFTER_ALL, last_closed
from slackwater.planners.window_needs import ALL
from slackwater.runtime.alerts.silence import Stretch, tells_silence
from slackwater.runtime.versions import sampled_to
from slackwater.runtime.work import Work


def stretch_of(work: Work, step: Step, since: int, closed: int, watermark: int) -> Stretch | None:
    """The windows of a step that close between two watermarks; None where it is not known what all had.

    To be asked before samples are forgotten that closed windows have a part in.
    """
    if not tells_silence(work.plan.catalog, step):
        return None
    window = step.window
    assert isinstance(window, TimeWindow)
    nested = step.path.source.lower() != work.decision.stream.lower()
    whole = work.samples.empty and work.drops.idle
    # of windows that are left out, or read others that may be, nothing is known
    if work.drops.delivered(step.name) != ALL or (nested and not whole):
        return None
    slot = work.slots.by_step.get(step.name.lower())
    if not work.samples.empty and slot is not None and work.samples.slot(slot.id) is not None:
        # a sample may have missed all rows of a window
        since = max(since, sampled_to(work.state))
    if watermark >= AFTER_ALL:
        # the stream has ended: windows that it did not come to are none, and its last one is a part
        if work.state.latest is None:
            return None
        watermark = work.state.latest
    first = None if closed <= -AFTER_ALL else last_closed(window, closed) + 1
    if first is not None and work.state.begun is not None:
        # with LATENESS the watermark is for long before all that there is
        since = max(since, work.state.begun)
    if since > -AFTER_ALL:
        whole_from = -((window.offset - since) // window.slide)
        first = whole_from if first is None else max(first, whole_from)
    last = last_closed(window, watermark)
    if first is not None and first > last:
        return None
    return Stretch(step.name, window, first, last, work.now())
