/** The tide line: the load as water against the capacity, and the level below it. */

import { number, say, seconds } from "./format.js";
import { colour, onColours } from "./palette.js";
import { brokenUp, levelOptions, loadOptions } from "./tide_lines.js";

const SPANS = [[120, "2 min"], [600, "10 min"], [3_600, "1 h"]];
/** Moments that are drawn: more would lie on one pixel. */
const DRAWN = 1_200;
const byId = (name) => document.getElementById(name);

export class TideLine {
  constructor({ chosen = null } = {}) {
    this.places = [byId("tide-chart"), byId("level-chart")];
    this.span = SPANS[0][0];
    this.tide = null;
    this.now = null;
    this.chosen = chosen;
    this.charts = null;
    this.#spans();
    onColours(() => this.charts?.forEach((chart) => chart.redraw(false)));
    new ResizeObserver(() => this.#fit()).observe(this.places[0]);
  }

  /** Draws a tide; ``now`` is a time in a recording, of which all is shown. */
  show(tide, now = null) {
    [this.tide, this.now] = [tide, now];
    const recorded = now !== null;
    const last = tide.rows.at(-1)?.at ?? 0;
    const from = recorded ? (tide.rows[0]?.at ?? 0) : last - this.span;
    const rows = tide.rows.filter((row) => row.at >= from);
    const drawn = thinned(rows, last - from);
    // where nothing governs the load there is none: what arrives is shown in its place
    const governed = rows.some((row) => row.load !== null);
    say(byId("tide-unit"), governed || !rows.length ? "executor seconds a batch, UTC" : "rows a second, UTC; load is not measured yet");
    const [at, ...columns] = brokenUp([
      drawn.map((row) => row.at),
      drawn.map((row) => (governed ? row.load : row.rows)),
      drawn.map((row) => (governed ? row.kept : row.rows)),
      drawn.map((row) => row.capacity),
      drawn.map((row) => row.level),
    ]);
    const [main, level] = [[at, ...columns.slice(0, 3)], [at, columns[3]]];
    this.charts ??= [
      new uPlot(loadOptions(this.places[0], { hooks: this.#hooks() }), main, this.places[0]),
      new uPlot(levelOptions(this.places[1], { hooks: this.#hooks() }), level, this.places[1]),
    ];
    const range = { min: from, max: Math.max(last, from + 1) };
    for (const [chart, data] of [[this.charts[0], main], [this.charts[1], level]]) {
      chart.batch(() => {
        chart.setData(data, false);
        chart.setScale("x", range);
      });
    }
    this.#words(recorded ? rows.filter((row) => row.at <= now) : rows, governed);
  }

  #words(rows, governed) {
    const last = rows.at(-1);
    if (!last) return;
    const most = Math.max(...rows.map((row) => row.load ?? 0));
    this.places[0].setAttribute(
      "aria-label",
      governed
        ? `Load ${seconds(last.load)}, kept ${seconds(last.kept)}, capacity ${seconds(last.capacity)}; largest load shown ${seconds(most)}`
        : `${number(last.rows)} rows a second; the load is not measured yet`,
    );
    const highest = Math.max(...rows.map((row) => row.level));
    this.places[1].setAttribute("aria-label", `Level ${last.level.toFixed(2)}; highest shown ${highest.toFixed(2)}`);
  }

  /** A click chooses a time of a recording; the chosen one is drawn. */
  #hooks() {
    const listen = (chart) =>
      chart.over.addEventListener("click", (event) => {
        if (this.chosen && this.now !== null) this.chosen(chart.posToVal(event.offsetX, "x"));
      });
    return { init: [listen], draw: [(chart) => this.#drawNow(chart)] };
  }

  /** The chosen time of a recording. */
  #drawNow(chart) {
    if (this.now === null) return;
    const { ctx, bbox } = chart;
    const x = chart.valToPos(this.now, "x", true);
    ctx.save();
    ctx.strokeStyle = colour("ink");
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.setLineDash([]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.restore();
  }

  #fit() {
    this.charts?.forEach((chart, i) => {
      const place = this.places[i];
      if (place.clientWidth) chart.setSize({ width: place.clientWidth, height: place.clientHeight });
    });
  }

  #spans() {
    const group = document.querySelector(".spans");
    for (const [length, words] of SPANS) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = words;
      button.setAttribute("aria-pressed", String(length === this.span));
      button.addEventListener("click", () => {
        this.span = length;
        for (const other of group.children) other.setAttribute("aria-pressed", String(other === button));
        if (this.tide) this.show(this.tide, this.now);
      });
      group.append(button);
    }
  }
}

/** Of moments that would be drawn at the same place the worst; by the clock, so that it is the same one each time. */
export function thinned(rows, length) {
  if (rows.length <= DRAWN) return rows;
  const together = Math.ceil(length / DRAWN);
  const kept = [];
  let before = NaN;
  for (const row of rows) {
    const place = Math.floor(row.at / together);
    if (place !== before) kept.push(row);
    else if (worse(row, kept.at(-1))) kept[kept.length - 1] = row;
    before = place;
  }
  return kept;
}

const worse = (row, other) => row.level > other.level || (row.level === other.level && (row.load ?? 0) > (other.load ?? 0));

/** What a level means, in a sentence. */
export function levelWords(frame) {
  if (frame.phase === "starting") return "Starting. The first batches are slow.";
  if (frame.load === null && frame.level === 0) return "Nothing has been measured yet.";
  const over = frame.load !== null && frame.capacity !== null && frame.load > 1.1 * frame.capacity;
  if (frame.level <= 0 && over) return "Late. A batch would take too long whatever is left out of it: nothing is shed.";
  if (frame.level <= 0) return "Slack water. Every answer is as exact as its contract could ask.";
  if (frame.level <= 1) return `Shedding. Queries give up ${Math.round(frame.level * 100)} % of what their contracts allow.`;
  return `Flood. Queries give up ${frame.level.toFixed(1)} times what their contracts allow.`;
}

/** The numbers beside the chart. */
export function showLevel(frame) {
  say(byId("level-value"), frame.level.toFixed(2));
  byId("level").dataset.calm = frame.level <= 0 ? "yes" : frame.level <= 1 ? "shedding" : "flood";
  say(byId("level-says"), levelWords(frame));
  say(byId("load-value"), seconds(frame.load));
  say(byId("kept-value"), seconds(frame.kept_load));
  say(byId("capacity-value"), seconds(frame.capacity));
}
