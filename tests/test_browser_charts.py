"""Charts in a real Chromium: axes that end, numbers as everywhere else, and what is drawn where nobody measured."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from browser import card, chromium, expect, opened, told_until
from browser_still import Told, a_few, served
from frames import START, at, frame, point, query, stream
from slackwater.runtime.show import compact, show_number
from slackwater.service.folding import moment_of
from slackwater.service.models import Moment, QueryFrame

DAY = 86_400


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """The page, for what its modules say by themselves."""
    with served(Told()) as address, opened(browser, address.page) as found:
        yield found


# --- axes --------------------------------------------------------------------------------------------

NARROW = [
    (9_300_000_000_000_000.0, 9_300_000_000_000_002.0),
    (1.7e18, 1.7e18 + 256),
    (6.02e23, math.nextafter(6.02e23, math.inf)),
    (-1.7e18 - 256, -1.7e18),
    (1.0, math.nextafter(1.0, 2.0)),
    (5e-324, 1e-323),
    (0.0, 5e-324),
    (1e300, 1e300),
    (-1.7e308, 1.7e308),
    (1.7e308, 1.7e308),
    (1e9, 1e9 + 2),
    (0.0, 0.0),
]


def test_an_axis_has_numbers_for_its_ticks_however_close_its_ends_are(page: Page) -> None:
    """Where a step is less than what tells two numbers apart, ticks would be added for ever."""
    ends = page.evaluate(
        """pairs => import("/page/axes.js").then(({ roomy }) => pairs.map(([least, most]) => roomy(null, least, most)))""",
        NARROW,
    )
    for (least, most), (low, high) in zip(NARROW, ends, strict=True):
        assert math.isfinite(low), (least, most)
        assert math.isfinite(high), (least, most)
        assert math.isfinite(high - low), (least, most)
        # of a hundred ticks each would be another number
        assert low + (high - low) / 100 > low, (least, most)
        assert high - (high - low) / 100 < high, (least, most)
        assert low < least + (most - least) / 2 or least < low, (least, most)
    drawn = page.evaluate(
        """async (pairs) => {
          const [{ bandOptions }, { loadOptions, levelOptions }] = await Promise.all(
            ["band", "tide"].map((name) => import(`/page/${name}_lines.js`)));
          const place = document.createElement("div");
          place.style.cssText = "position: fixed; width: 300px; height: 120px";
          document.body.append(place);
          const none = () => [];
          for (const pair of pairs) {
            const band = bandOptions(place, { suspended: none, unknown: none, told: () => {} });
            const charts = [
              new uPlot(band, [[1, 2], pair, pair, pair, pair], place),
              new uPlot(loadOptions(place), [[1, 2], pair, pair, pair], place),
              new uPlot(levelOptions(place), [[1, 2], pair], place),
            ];
            await new Promise(requestAnimationFrame);
            charts.forEach((chart) => chart.destroy());
          }
          place.remove();
          return pairs.length;
        }""",
        NARROW,
    )
    assert drawn == len(NARROW)


def test_a_line_that_moves_little_is_still_seen_to_move(page: Page) -> None:
    low, high = page.evaluate("import('/page/axes.js').then(({ roomy }) => roomy(null, 1e9, 1e9 + 10))")
    assert 1e9 - 3 < low < 1e9
    assert 1e9 + 10 < high < 1e9 + 13


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (1, r"\d\d:\d\d"),
        (9, r"03-\d\d"),
        (90, r"2026-\d\d"),
        (150, r"2026-\d\d"),
        (400, r"202[67]-\d\d"),
        (1_500, r"20(27|28|29|30)"),
        (9_000, r"20[3-5]\d"),
        (30_000, r"2[01]\d\d"),
    ],
)
def test_times_are_said_however_long_a_chart_is(page: Page, days: int, said: str) -> None:
    labels = page.evaluate(
        """async ([from, to]) => {
          const { bandOptions } = await import("/page/band_lines.js");
          const place = document.createElement("div");
          place.style.cssText = "position: fixed; width: 300px; height: 120px";
          document.body.append(place);
          const options = bandOptions(place, { suspended: () => [], unknown: () => [], told: () => {} });
          let labels = [];
          const { values } = options.axes[0];
          options.axes[0].values = (...all) => (labels = values(...all));
          const chart = new uPlot(options, [[from, to], [1, 1], [1, 1], [1, 1], [null, null]], place);
          await new Promise(requestAnimationFrame);
          chart.destroy();
          place.remove();
          return labels;
        }""",
        [START.timestamp(), START.timestamp() + days * DAY],
    )
    seen = [label for label in labels if label]
    assert seen
    assert all(re.fullmatch(said, label) for label in seen), seen
    assert len(set(seen)) == len(seen), "no two are alike"


# --- numbers -----------------------------------------------------------------------------------------


def said(page: Page, name: str, values: Sequence[float | None], *more: Any) -> list[str]:
    found: list[str] = page.evaluate(
        """([name, values, more]) => import("/page/format.js").then((all) =>
          values.map((value) => all[name](value, ...more)))""",
        [name, list(values), list(more)],
    )
    return found


def test_numbers_are_written_as_everywhere_else(page: Page) -> None:
    chance = random.Random(5)
    values = [
        0.004,
        0.0004,
        1e-4,
        9.99e-5,
        9.9999999e-5,
        1.5e-9,
        0.5,
        72.0,
        2.5,
        1234567.891,
        3.14159265,
        1e15 + 0.5,
        2e18,
        6.02e23,
    ]
    values += [chance.uniform(1, 10) * 10 ** chance.uniform(-12, 24) for _ in range(300)]
    values += [-value for value in values]
    for value, text in zip(values, said(page, "number", values, 6), strict=True):
        # from a JSON number it cannot be told whether it was a whole one: as far as it can be one it is
        known = int(value) if value == int(value) and abs(value) < 2**53 else value
        wanted = show_number(known)
        assert text == ("−" + wanted[1:] if wanted.startswith("-") else wanted), value
    assert said(page, "number", [0.004, 0.0004, 0.123456, 1.7e18, 9_007_199_254_740_991, None], 3) == [
        "0.004", "0.0004", "0.123", "1.7e+18", "9,007,199,254,740,991", "–",
    ]  # fmt: skip


def test_counts_are_short_however_large(page: Page) -> None:
    counts = [0, 950, 1234, 45_600, 1_234_567, 999_999, 9.3e15, 1.7e18]
    assert said(page, "compact", counts) == [compact(count) for count in counts]
    assert said(page, "compact", [1e22, 1e300, -6.02e23, 0.004, 0.5, 1.25]) == [
        "1e+22", "1e+300", "−6.02e+23", "0.004", "0.5", "1.25",
    ]  # fmt: skip
    floor, ceiling = page.evaluate(
        """import("/page/format.js").then(({ compact }) =>
          [Math.floor, Math.ceil].map((round) => [1.2345e22, -1.2345e22, 1.2345e6].map((each) => compact(each, 3, round))))"""
    )
    assert floor == ["1.23e+22", "−1.24e+22", "1.23M"]
    assert ceiling == ["1.24e+22", "−1.23e+22", "1.24M"]
    assert said(page, "tick", [0, 1e-7, -0.0025, 1.5e22, 2_000_000]) == [
        "0",
        "1e-07",
        "−0.0025",
        "1.5e+22",
        "2M",
    ]


def test_small_values_are_not_nothing_in_the_words_of_a_chart(browser: Browser) -> None:
    small = query("calm", [point(1, 0.0004, half=0.0001, how="sampled"), point(2, 0.0005)], how="sampled")
    with served(Told(frame(1, [small], whole=True))) as address, opened(browser, address.page) as page:
        expect(card(page, "calm").locator("canvas")).to_be_visible()
        words = card(page, "calm").locator(".chart").get_attribute("aria-label") or ""
        assert "between 0.0004 and 0.0005, widest interval ± 0.0001" in words


# --- which points ------------------------------------------------------------------------------------


def test_a_chart_moves_on_with_every_point(browser: Browser) -> None:
    points = [point(s, s) for s in range(1, 301)]
    watched = Told(frame(1, [query("calm", points)], whole=True))
    with served(watched) as address, opened(browser, address.page) as page:
        chart = card(page, "calm").locator(".chart")
        expect(chart).to_have_attribute("data-points", "300")
        for second in range(301, 304):
            watched.tell([query("calm", [point(second, second)], last_text=str(second))])
            expect(card(page, "calm").locator(".value")).to_have_text(str(second))
            expect(chart).to_have_attribute("data-points", "300")
            words = chart.get_attribute("aria-label") or ""
            assert f"between {second - 299} and {second}," in words


# --- the tide line -----------------------------------------------------------------------------------


def test_the_tide_line_ends_where_nobody_measured(page: Page) -> None:
    broken = page.evaluate(
        """rows => import("/page/tide_lines.js").then(({ brokenUp }) => rows.map((at) => brokenUp([at, at.map(() => 7)])))""",
        [[1, 2, 3, 4, 60, 61, 62, 100, 101], [0, 30, 61, 95, 120], [1, 2, 4, 5, 8, 9], [5], [], [1, 2, 90]],
    )
    assert broken == [
        [[1, 2, 3, 4, 32, 60, 61, 62, 81, 100, 101], [7, 7, 7, 7, None, 7, 7, 7, None, 7, 7]],
        # as far apart as in a recording that is thinned out
        [[0, 30, 61, 95, 120], [7] * 5],
        # a frame that is late, or one that is missing, is no hole
        [[1, 2, 4, 5, 8, 9], [7] * 6],
        [[5], [7]],
        [[], []],
        [[1, 2, 46, 90], [7, 7, None, 7]],
    ]


@dataclass
class Remembering(Told):
    """`Watched` that remembers the moments of all its frames, also of those that were not sent."""

    remembered: list[Moment] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)

    def tell(self, queries: list[QueryFrame] | None = None, **more: Any) -> None:
        super().tell(queries, **more)
        self.remembered.append(moment_of(self.shown))

    def moments(self, limit: int) -> Sequence[Moment]:
        self.asked.append(limit)
        return self.remembered[-limit:]


PAINT = """([place, colours]) => {
  const canvas = document.querySelector(`${place} canvas`);
  const { width, height } = canvas;
  // a copy: one that is read from is drawn to in another way from then on
  const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, width, height);
  const style = getComputedStyle(document.documentElement);
  const paint = ([colour, alpha]) => {
    const pen = new OffscreenCanvas(1, 1).getContext("2d");
    pen.globalAlpha = alpha;
    pen.fillStyle = style.getPropertyValue(`--${colour}`);
    pen.fillRect(0, 0, 1, 1);
    return pen.getImageData(0, 0, 1, 1).data;
  };
  const wanted = paint(colours);
  const columns = new Array(width).fill(0);
  for (let i = 0; i < data.length; i += 4) {
    // colours of what is hardly there are known to a few steps only, and edges are half there
    const off = [0, 1, 2].reduce((most, n) => Math.max(most, Math.abs(data[i + n] - wanted[n])), 0);
    if (Math.abs(data[i + 3] - wanted[3]) <= (wanted[3] > 200 ? 60 : 3) && off <= 12) columns[(i / 4) % width] += 1;
  }
  // without its axes
  const [whole, inner] = [canvas, document.querySelector(`${place} .u-over`)].map((each) => each.getBoundingClientRect());
  const left = Math.round((inner.left - whole.left) * devicePixelRatio);
  return columns.slice(left, left + Math.round(inner.width * devicePixelRatio));
}"""


def painted(page: Page, name: str, colour: str, alpha: float = 1.0) -> list[int]:
    """How many pixels of a chart have a colour, by column; the chart of a card, or one by its place."""
    place = name if name.startswith("#") else f'#cards > li[data-name="{name}"]'
    found: list[int] = page.evaluate(PAINT, [place, [colour, alpha]])
    return found


def empty_stretch(columns: Sequence[int]) -> float:
    """The longest stretch without a pixel between two that have some, as a part of them all."""
    longest = since = 0
    there = [i for i, count in enumerate(columns) if count]
    for i in there:
        longest, since = max(longest, i - since if since else 0), i
    return longest / (there[-1] - there[0]) if there else 1.0


def test_time_that_was_missed_is_asked_for_again(browser: Browser) -> None:
    """The page was cut off for a minute; the run has gone on meanwhile."""
    watched = Remembering()
    with served(watched) as address, opened(browser, address.page) as page:
        expect(page.locator("#count")).to_have_text("4")
        for number in range(2, 20):
            watched.tell(at=at(number), load=1.0, kept_load=0.5, capacity=2.0)
        told = page.locator("#tide-chart")
        expect(told).to_have_attribute(
            "aria-label", "Load 1 s, kept 500 ms, capacity 2 s; largest load shown 1 s"
        )
        # frames that it does not get
        for number in range(20, 80):
            watched.remembered.append(moment_of(frame(number, at=at(number), load=1.5)))
        watched.shown = watched.shown.model_copy(update={"number": 79})
        watched.tell(at=at(80), load=1.0, kept_load=0.5, capacity=2.0, whole=True)
        expect(told).to_have_attribute(
            "aria-label", "Load 1 s, kept 500 ms, capacity 2 s; largest load shown 1.5 s"
        )
        assert watched.asked == [3_600, 3_600]
        assert empty_stretch(painted(page, "#tide-chart", "water")) < 0.1


def test_time_that_nobody_measured_is_empty(browser: Browser) -> None:
    watched = Remembering()
    with served(watched) as address, opened(browser, address.page) as page:
        expect(page.locator("#count")).to_have_text("4")
        for number in [*range(2, 40), *range(80, 121)]:
            watched.tell(at=at(number), load=1.0 + number / 1_000, kept_load=0.5, capacity=2.0)
        expect(page.locator("#load-value")).to_have_text("1.12 s")
        expect(page.locator("#tide-chart")).to_have_attribute(
            "aria-label", "Load 1.12 s, kept 500 ms, capacity 2 s; largest load shown 1.12 s"
        )
        told_until(page, lambda: None, lambda: empty_stretch(painted(page, "#tide-chart", "water")) > 0.2)


def test_an_hour_of_the_tide_line_is_shown(browser: Browser) -> None:
    hour = [
        moment_of(frame(n, at=at(n), load=5.0 if n == 700 else 1.0, streams=[stream()]))
        for n in range(1, 3_601)
    ]
    watched = Remembering(frame(3_601, a_few(), whole=True, load=1.0), remembered=hour)
    with served(watched) as address, opened(browser, address.page) as page:
        words = page.locator("#tide-chart")
        spans = page.get_by_role("group", name="Time shown").get_by_role("button")
        expect(spans).to_have_text(["2 min", "10 min", "1 h"])
        expect(words).to_have_attribute(
            "aria-label", "Load 1 s, kept 800 ms, capacity 900 ms; largest load shown 1 s"
        )
        spans.last.click()
        expect(words).to_have_attribute(
            "aria-label", "Load 1 s, kept 800 ms, capacity 900 ms; largest load shown 5 s"
        )
        expect(spans.last).to_have_attribute("aria-pressed", "true")
        # the one that stands out is drawn, though not all are
        places = page.evaluate(
            """() => import("/page/tide.js").then(({ thinned }) => {
              const rows = Array.from({ length: 3600 }, (_, at) => ({ at, load: at === 701 ? 5 : 1, level: 0 }));
              const moved = [...rows.slice(1), { at: 3600, load: 1, level: 0 }];
              return [rows, moved].map((each) => thinned(each, 3600).map((row) => row.at));
            })"""
        )
        for drawn in places:
            assert len(drawn) <= 1_201
            assert 701 in drawn
        assert len(set(places[0]) - set(places[1])) <= 1, "what is drawn stays when time goes on"


# --- what is drawn of answers ------------------------------------------------------------------------


def parts(columns: Sequence[int], count: int) -> list[int]:
    """Pixels in so many parts of the width that the line takes, from the left."""
    size = len(columns) / count
    return [sum(columns[round(n * size) : round((n + 1) * size)]) for n in range(count)]


def test_a_burst_widens_the_band_that_is_drawn(browser: Browser) -> None:
    def told(half: dict[int, float], last: int) -> QueryFrame:
        points = [
            point(s, 1_000 + 30 * (s % 3), half=half.get(s, 0), how="sampled" if s in half else "exact")
            for s in range(1, last + 1)
        ]
        return query("total", points, how=points[-1].how, last_text=str(last))

    burst = dict.fromkeys(range(21, 41), 200.0)
    more = dict.fromkeys(range(31, 41), 400.0)
    watched = Told(frame(1, [told({}, 20)], whole=True))
    with served(watched) as address, opened(browser, address.page) as page:
        value, chart = card(page, "total").locator(".value"), card(page, "total").locator("canvas")

        def band(next_: QueryFrame | None) -> list[int]:
            if next_ is not None:
                watched.tell([next_])
                expect(value).to_have_text(next_.last_text)
            expect(chart).to_be_visible()
            return painted(page, "total", "band")

        calm = band(None)
        # a few pixels at the edge of the line look like it
        assert sum(calm) < 20, "what is exact has no band"
        widened = band(told(burst, 30))
        assert parts(widened, 2)[0] < 20
        assert sum(widened) > 500
        wider = band(told(burst | more, 40))
        first, second = parts(wider, 4)[-2:][0], parts(wider, 4)[-1]
        assert second > 1.5 * first, "twice as wide an interval is drawn twice as high"
        after = band(told(burst | more, 80))
        assert sum(after) > 500, "what was is still to be seen"
        assert max(parts(after, 5)[0], parts(after, 5)[-1]) < 20, "and it has closed again"


def test_a_window_that_is_left_out_is_an_empty_column(browser: Browser) -> None:
    gone = {7, 8, 9}
    points = [point(s, 100 + s, how="subset") for s in range(1, 16) if s not in gone]
    whole = [point(s, 100 + s, how="subset") for s in range(1, 16)]
    shown = [query("holed", points, how="subset"), query("whole", whole, how="subset")]
    with served(Told(frame(1, shown, whole=True))) as address, opened(browser, address.page) as page:
        expect(card(page, "whole").locator("canvas")).to_be_visible()
        expect(card(page, "holed").locator("canvas")).to_be_visible()
        # from the sixth to the tenth of fifteen windows are four of fourteen steps
        assert empty_stretch(painted(page, "holed", "water")) == pytest.approx(4 / 14, abs=0.02)
        assert empty_stretch(painted(page, "whole", "water")) < 0.02


def test_what_is_modelled_is_dashed_and_what_was_suspended_hatched_as_drawn(browser: Browser) -> None:
    def how(s: int) -> str:
        return "modelled" if 8 <= s <= 20 else "sampled"

    guessed = [point(s, 40, half=4, how=how(s)) for s in range(1, 29)]
    away = [
        point(s, None if 8 <= s <= 20 else 30, how="suspended" if 8 <= s <= 20 else "exact")
        for s in range(1, 29)
    ]
    shown = [query("guessed", guessed, how="sampled"), query("away", away, how="exact")]
    with served(Told(frame(1, shown, whole=True))) as address, opened(browser, address.page) as page:
        expect(card(page, "guessed").locator("canvas")).to_be_visible()
        expect(card(page, "away").locator("canvas")).to_be_visible()
        line = [bool(count) for count in painted(page, "guessed", "water")]
        first = line.index(True)
        line = line[first : len(line) - line[::-1].index(True)]
        steps = len(line) / 27
        before, dashed, after = (
            line[: int(5 * steps)],
            line[int(8 * steps) : int(18 * steps)],
            line[int(21 * steps) :],
        )
        assert all(before)
        assert all(after)
        breaks = sum(one and not other for one, other in itertools.pairwise(dashed))
        assert breaks >= 5, "dashes have room between them"
        # and a band all the same
        assert min(painted(page, "guessed", "band")[first + int(9 * steps) : first + int(17 * steps)]) > 0
        hatched = [bool(count) for count in painted(page, "away", "suspended")]
        there = [i for i, one in enumerate(hatched) if one]
        assert len(there) > 20
        assert empty_stretch(painted(page, "away", "water")) == pytest.approx(14 / 27, abs=0.03)
        assert (there[-1] - there[0]) == pytest.approx(13 * steps, rel=0.15), "where it was, and nowhere else"


def test_an_answer_without_an_interval_is_no_hole(browser: Browser) -> None:
    """While an agent is away nothing is known of a sum; that is not what it is to have no answer."""
    away = {8, 9, 10}
    points = [point(s, None if s in away else 30 + s, half=2, how="bounded") for s in range(1, 16)]
    null = [point(s, None if s in away else 30 + s) for s in range(1, 16)]
    shown = [
        query("sums", points, kind="current", how="bounded"),
        query("windows", points, how="bounded"),
        query("nulls", null),
    ]
    with served(Told(frame(1, shown, whole=True))) as address, opened(browser, address.page) as page:
        for name, count in (("sums", 3 / 14), ("windows", 3 / 14), ("nulls", 0)):
            expect(card(page, name).locator("canvas")).to_be_visible()
            tinted = painted(page, name, "suspended", 0.4)
            high = [i for i, pixels in enumerate(tinted) if pixels > 20]
            line = [i for i, pixels in enumerate(painted(page, name, "water")) if pixels]
            assert len(high) / (line[-1] - line[0]) == pytest.approx(count, abs=0.02), name
        words = {
            name: card(page, name).locator(".chart").get_attribute("aria-label") or ""
            for name in ("sums", "windows", "nulls")
        }
        assert "widest interval ± 2, no interval for 3 of them, last 45 [43, 47], bounded" in words["sums"]
        assert "no interval for 3 of them" in words["windows"]
        assert "no interval" not in words["nulls"], "NULL is an answer"
        # and it says so below a pointer
        box = card(page, "sums").locator(".chart .u-over").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] * 8.2 / 14, box["y"] + box["height"] / 2)
        expect(card(page, "sums").locator(".of")).to_have_text(re.compile(r"  –  bounded, no interval$"))


# --- cards -------------------------------------------------------------------------------------------


def test_a_card_that_leaves_the_view_forgets_what_was_below_the_pointer(browser: Browser) -> None:
    with served(Told()) as address, opened(browser, address.page) as page:
        of = card(page, "calm").locator(".of")
        expect(of).to_have_text("n")
        box = card(page, "calm").locator(".chart .u-over").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expect(of).to_have_text(re.compile("12:00:0[45]"))
        # its chart is gone before it could say that the pointer has left it
        told = card(page, "calm").evaluate(
            """element => {
              element.card.seen(false);
              const of = element.querySelector(".of");
              return [of.textContent, of.className];
            }"""
        )
        assert told == ["n", "of"]


def test_what_a_card_has_no_room_for_is_told_on_a_look(browser: Browser) -> None:
    name, number = "bytes_by_customer_of_the_largest_region_and_all_its_shops", "1,234,567,890,123,456,789"
    contract = "ERROR 5% CONFIDENCE 99% WEIGHT 2 PRIORITY 3 AND MORE THAN ANYBODY WRITES"
    keys = {"customer": "somebody with a name that is longer than a card is wide"}
    one = query(name, [point(1)], contract=contract, keys=keys, groups=9, last_text=f"{number} ± 12")
    other = query("late", [point(1)], last_text="12,345,678,901,234 ± 12")
    with served(Told(frame(1, [one, other], whole=True))) as address, opened(browser, address.page) as page:
        shown = card(page, name)
        expect(shown.locator(".value")).to_have_text("1.23457E")
        expect(shown.locator(".value")).to_have_attribute("title", number)
        for place, whole in (
            (".open", name),
            (".contract", contract),
            (".of", re.compile("wide · one of 9")),
        ):
            expect(shown.locator(place)).to_have_attribute("title", whole)
        expect(card(page, "late").locator(".value")).to_have_text("12,345,678,901,234")
        cut = "all => all.filter((each) => each.scrollWidth > each.clientWidth).length"
        assert page.locator(".card .value").evaluate_all(cut) == 0


def test_facts_that_have_no_room_are_cut_off_with_a_sign(browser: Browser) -> None:
    long = query("calm", [point(1)], error=123_456.789, rate=0.1234, load=0.000123456)
    short = query("late", [point(1)], error=0.01, rate=1.0, load=0.2)
    with served(Told(frame(1, [long, short], whole=True))) as address, opened(browser, address.page) as page:
        expect(card(page, "late").locator("dd.load")).to_have_text("200 ms")
        for name in ("calm", "late"):
            cut = (
                card(page, name)
                .locator(".facts dd")
                .evaluate_all(
                    """all => all.filter((each) => each.scrollWidth > each.clientWidth)
                  .map((each) => [getComputedStyle(each).textOverflow, each.title === each.textContent])"""
                )
            )
            assert all(each == ["ellipsis", True] for each in cut), cut
            over = (
                card(page, name)
                .locator(".facts div")
                .evaluate_all("all => all.filter((each) => each.scrollWidth > each.clientWidth).length")
            )
            assert over == 0, "no fact is cut off without a sign"
        assert (
            card(page, "late")
            .locator(".facts dd")
            .evaluate_all("all => all.every((each) => each.scrollWidth <= each.clientWidth)")
        )
        assert card(page, "calm").locator("dd.error").get_attribute("title") == "12350000 %"
