/** The plots of a report: the tide line, and one band chart for each query. */

import { bandOptions, columnsOf, pointText } from "../band_lines.js";
import { onColours, recoloured } from "../palette.js";
import { brokenUp, levelOptions, loadOptions } from "../tide_lines.js";

const PRINTED = { tide: 680, card: 300 };
const AT_A_TIME = 8;
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const drawn = [];
const waiting = [...data.queries];
let printing = false;

function keep(place, kind, chart) {
  drawn.push({ place, kind, chart });
  new ResizeObserver(() => {
    if (printing || !place.clientWidth || place.clientWidth === chart.width) return;
    chart.setSize({ width: place.clientWidth, height: place.clientHeight });
  }).observe(place);
}

function drawTide() {
  const { at, load, kept, capacity, level, rows } = data.tide;
  const measured = load.some((value) => value !== null);
  const [above, below] = [".tide-chart", ".level-chart"].map((name) => document.querySelector(name));
  // where no load is measured, what arrives is shown in its place
  const lines = measured ? [at, load, kept, capacity] : [at, rows, rows, capacity];
  keep(above, "tide", new uPlot(loadOptions(above), brokenUp(lines), above));
  keep(below, "tide", new uPlot(levelOptions(below), brokenUp([at, level]), below));
}

/** Points of a query, which are told as columns. */
function pointsOf({ at, value, low, high, how, gap, rate, slope }) {
  return at.map((time, i) => ({
    at: time, value: value[i], low: low[i], high: high[i], how: data.hows[how[i]], gap: gap[i] > 0, rate: rate[i],
    slope: slope?.[i] ?? 0,
  }));
}

function drawBand(query) {
  const { kind, slide, until } = query;
  const place = document.getElementById(query.id);
  const of = place.previousElementSibling;
  const words = of.textContent;
  const points = pointsOf(query);
  const { columns, suspended, unknown, index } = columnsOf(points, { kind, slide, until });
  const told = (row) => {
    const point = points[index[row] ?? -1];
    of.textContent = point === undefined ? words : pointText(point);
    of.classList.toggle("hovered", point !== undefined);
  };
  const options = bandOptions(place, { suspended: () => suspended, unknown: () => unknown, told });
  keep(place, "card", new uPlot(options, columns, place));
}

function drawRest() {
  for (const query of waiting.splice(0)) drawBand(query);
  root.dataset.drawn = "yes";
}

/** A few at a time: hundreds of charts at once would hold the page up. */
function drawSome() {
  for (const query of waiting.splice(0, AT_A_TIME)) drawBand(query);
  if (waiting.length) setTimeout(drawSome);
  else root.dataset.drawn = "yes";
}

onColours(() => drawn.forEach(({ chart }) => chart.redraw(false)));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recoloured);
addEventListener("beforeprint", () => {
  printing = true;
  root.dataset.print = "yes";
  drawRest();
  recoloured();
  for (const { chart, kind, place } of drawn) chart.setSize({ width: PRINTED[kind], height: place.clientHeight });
});
addEventListener("afterprint", () => {
  printing = false;
  delete root.dataset.print;
  recoloured();
  for (const { chart, place } of drawn) chart.setSize({ width: place.clientWidth, height: place.clientHeight });
});
document.fonts.ready.then(() => {
  drawTide();
  drawSome();
});
