/** The tide line: the load as water against the capacity, and the level below it. */

import { clock, compact, number, say, seconds } from "./format.js";
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
    this.#legend(governed || !rows.length);
    const [at, ...columns] = brokenUp([
      drawn.map((row) => row.at),
      drawn.map((row) => (governed ? row.load : row.rows)),
      drawn.map((row) => (governed ? row.kept : row.rows)),
      drawn.map((row) => row.capacity),
      drawn.map((row) => row.level),
    ]);
    const [main, level] = [[at, ...columns.slice(0, 3)], [at, columns[3]]];
    this.charts ??= [
      new uPlot(loadOptions(this.places[0], { hooks: { ...this.#hooks(), setCursor: [(chart) => this.#read(chart)] } }), main, this.places[0]),
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

  /** What is drawn, and in which unit. */
  #legend(governed) {
    this.governed = governed;
    document.querySelector(".legend").dataset.drawn = governed ? "load" : "rows";
    say(byId("kept-key"), governed ? "kept" : "rows that arrive; the load is not measured yet");
    const unit = byId("tide-unit");
    say(unit, governed ? "s a batch · UTC" : "rows/s · UTC");
    const title = governed ? "Executor seconds of a batch; times in UTC" : "Rows a second; times in UTC";
    if (unit.title !== title) unit.title = title;
  }

  /** The values where the pointer is, on the side where it is not. */
  #read(chart) {
    const { idx, left } = chart.cursor;
    const place = byId("tide-reading");
    place.hidden = idx === null || idx === undefined || left < 0;
    if (place.hidden) return;
    const [at, load, kept, capacity] = chart.data.map((column) => column[idx]);
    const level = this.charts?.[1].data[1][idx] ?? null;
    const values = this.governed
      ? [`load ${seconds(load)}`, `kept ${seconds(kept)}`, `capacity ${seconds(capacity)}`]
      : [`${compact(load)} rows/s`];
    say(place, [clock(at), ...values, `ℓ ${level === null ? "–" : level.toFixed(2)}`].join(" · "));
    place.dataset.side = left > chart.over.clientWidth / 2 ? "left" : "right";
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

/** Answers of which something was left out to save load, not because their contract has them so. */
const SHED = new Set(["sampled", "subset", "suspended"]);

/** What a level means, in a sentence; of the queries what is left of shedding counts, and which contracts are not met. */
export function levelWords(frame, queries = new Map()) {
  if (frame.phase === "starting") return "Starting. The first batches are slow.";
  if (frame.phase === "failed") return "The run has failed. Nothing is answered any more.";
  if (frame.phase === "stopped") return "The run was stopped. This is how it was at last.";
  if (frame.phase === "ended") return "The streams have ended. These are the last answers.";
  if (frame.load === null && frame.level === 0) return "Nothing has been measured yet.";
  const over = frame.load !== null && frame.capacity !== null && frame.load > 1.1 * frame.capacity;
  if (frame.level <= 0 && over) return "Late. A batch would take too long whatever is left out of it: nothing is shed.";
  if (frame.level <= 0) return slackWords([...queries.values()].map((query) => query.frame));
  if (frame.level <= 1) return `Shedding. Queries give up ${Math.round(frame.level * 100)} % of what their contracts allow.`;
  return `Flood. Queries give up ${frame.level.toFixed(1)} times what their contracts allow.`;
}

/** While nothing is shed: whether the answers that are shown are already of all rows, and whether that helps them. */
function slackWords(queries) {
  const shed = queries.some(isShed);
  const unmet = queries.filter((query) => query.met === false && !isShed(query)).length;
  if (!shed && !unmet) return "Slack water. Every answer is as exact as its contract could ask.";
  const words = shed ? "Nothing is shed any more; the newest windows of some queries still lack rows." : "Slack water: nothing is shed.";
  return unmet ? `${words} ${unmet === 1 ? "1 contract is" : `${unmet} contracts are`} not met for another reason.` : words;
}

const isShed = (query) => query.suspended || SHED.has(query.how);

/** The numbers beside the chart. */
export function showLevel(frame, queries) {
  say(byId("level-value"), frame.level.toFixed(2));
  byId("level").dataset.calm = frame.level <= 0 ? "yes" : frame.level <= 1 ? "shedding" : "flood";
  say(byId("level-says"), levelWords(frame, queries));
  say(byId("load-value"), seconds(frame.load));
  say(byId("kept-value"), seconds(frame.kept_load));
  say(byId("capacity-value"), seconds(frame.capacity));
}
