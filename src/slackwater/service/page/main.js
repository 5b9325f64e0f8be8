/** The page: frames come in, and what they tell is shown, at most once for each picture of the screen. */

import { AgentsPanel } from "./agents.js";
import { AlertsPanel } from "./alerts.js";
import { takeToken } from "./api.js";
import { Cards } from "./cards.js";
import { startColours } from "./colours.js";
import { follow, isThere } from "./events.js";
import { fill, fillTide } from "./fill.js";
import { NewQuery } from "./form.js";
import { moment } from "./format.js";
import { KnobsPanel } from "./knobs.js";
import { Plan } from "./plan.js";
import { Recording } from "./recording.js";
import { Run } from "./run.js";
import { Scrubber } from "./scrubber.js";
import { QuerySheet } from "./sheet.js";
import { Announcer, banners, showPhase, Silence } from "./status.js";
import { StreamBar } from "./streams.js";
import { showLevel, TideLine } from "./tide.js";

const PLAN_EVERY_MS = 2_000;
/** A recording is moved through by hand, and nothing runs beside it. */
const PLAN_OF_RECORDING_EVERY_MS = 300;
/** Who moves through a recording whose service has gone is told so, without being asked for each step. */
const THERE_EVERY_MS = 2_000;

/** A run or a recording; which of them the first frame says. */
let state = null;
let recorded = false;
/** Whether a recording was read to its end: nothing is followed from then on. */
let whole = false;
let thereTimer = 0;
/** Names of queries that are not as they are shown; null: any of them. */
let changed = new Set();
let asked = 0;
let planAt = -Infinity;
let planTimer = 0;

takeToken();
// an address with a token that is put into an open page loads nothing anew
addEventListener("hashchange", takeToken);
startColours();

const announcer = new Announcer();
const announce = (text, about) => announcer.say(text, about);
const sheet = new QuerySheet({ announce });
const openQuery = (query) => query && sheet.open(query, untilOf(state.frame)(query), recorded ? state.frame.version : null);
const scrubber = new Scrubber({ chosen: (place) => show(place) });
const silence = new Silence({
  expected: () => state !== null && !recorded && ["starting", "running"].includes(state.frame.phase),
  announce: (text) => announcer.say(text),
});
const streamBar = new StreamBar();
const tide = new TideLine({ chosen: (at) => scrubber.choose(state.placeOf(at)) });
const cards = new Cards({ open: openQuery, fill: (query, done) => !recorded && fill(query, done), announce });
const plan = new Plan({ open: (name) => openQuery(state.queries.get(name)) });
const agents = new AgentsPanel();
const alerts = new AlertsPanel({ announce });
const knobs = new KnobsPanel();
const form = new NewQuery({
  announce,
  registered: (names) => {
    announcer.say(`Registered: ${names.join(", ")}`);
    cards.reveal(names);
  },
});
document.getElementById("new-query").addEventListener("click", () => form.open());

/** Until when the last answer of a query stands: as far as its stream has come. */
function untilOf(frame) {
  const reached = new Map(frame.streams.map((stream) => [stream.name, moment(stream.watermark ?? frame.at)]));
  return (query) => reached.get(query.frame.stream) ?? moment(frame.at);
}

function seen(frame) {
  if (state === null) begin(frame);
  // a run has gone, and a recording is opened at its address, or the other way round
  else if (frame.mode !== document.documentElement.dataset.mode) return location.reload();
  if (recorded) {
    state.fold(frame);
    scrubber.grown(state);
    return false;
  }
  silence.broken();
  const told = state.fold(frame);
  // one that is whole comes where others were missed: the service still knows their moments
  if (frame.whole) fillTide(state.tide, ask);
  for (const name of told.changed) changed?.add(name);
  announcer.turned(told.turned);
  ask();
  return true;
}

function begin(frame) {
  recorded = frame.mode === "recorded";
  document.documentElement.dataset.mode = frame.mode;
  state = recorded ? new Recording() : new Run();
}

/** Shows a place of a recording. */
function show(place) {
  state.show(place);
  changed = null;
  ask();
  if (whole && !thereTimer) {
    look();
    thereTimer = setTimeout(() => {
      thereTimer = 0;
      look();
    }, THERE_EVERY_MS);
  }
}

/** Looks whether the service of a recording is still there. */
async function look() {
  if (await isThere()) banners.back();
  else banners.gone();
}

function ask() {
  if (!asked) asked = requestAnimationFrame(draw);
}

function draw() {
  asked = 0;
  const { frame } = state;
  const names = changed;
  changed = new Set();
  const until = untilOf(frame);
  showPhase(frame);
  streamBar.show(frame.streams);
  showLevel(frame, state.queries);
  tide.show(state.tide, recorded ? moment(frame.at) : null);
  // a sheet that closes gives the focus back to a card, which may go then
  sheet.show(state, until);
  cards.show(state, until, names);
  agents.show(frame);
  alerts.show(frame);
  knobs.show(frame.knobs ?? null);
  drawPlan();
}

/** The plan is asked for now and then; in the end it is that of the frame which is shown, though none follows. */
function drawPlan() {
  clearTimeout(planTimer);
  const early = planAt + (recorded ? PLAN_OF_RECORDING_EVERY_MS : PLAN_EVERY_MS) - performance.now();
  if (early > 0) {
    planTimer = setTimeout(drawPlan, early);
    return;
  }
  planAt = performance.now();
  plan.refresh(state);
}

follow({
  seen,
  lost: (why) => banners.lost(state?.frame ?? null, why),
  back: () => {
    banners.back();
    silence.broken();
  },
  ended: () => {
    whole = true;
    scrubber.whole();
  },
});
