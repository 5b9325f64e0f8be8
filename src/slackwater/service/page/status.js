/** How the run is: its phase, its streams, what is wrong, and words for those who do not see the page. */

import { compact, duration, make, say } from "./format.js";

const LOST_AFTER_MS = 1_200;
const QUIET_MS = 2_500;
const MOST_NAMES = 3;
/** A place that has just come into view needs a moment before what is put into it is read. */
const TICK_MS = 100;
/** A batch is long beyond so many seconds, and so many times what the last one took. */
const LONG_S = 3;
const LONG = 2;
const byId = (name) => document.getElementById(name);

/** The phase, why a run has failed, and what is wrong with one that goes on. */
export function showPhase(frame) {
  const place = byId("phase");
  const phase = frame.mode === "recorded" ? "recorded" : frame.phase;
  if (place.dataset.phase !== phase) place.dataset.phase = phase;
  say(place, phase);
  const failed = byId("failed");
  const wrong = frame.phase === "failed";
  say(failed, wrong ? `The run has failed: ${frame.message || "it gave no reason"}` : "");
  if (failed.hidden === wrong) failed.hidden = !wrong;
  say(byId("warning"), wrong || !frame.message ? "" : `Warning: ${frame.message}`);
}

/** Streams at the top: name, state, rows a second, and how far behind. */
export function showStreams(streams) {
  const place = byId("streams");
  while (place.children.length > streams.length) place.lastElementChild.remove();
  streams.forEach((stream, i) => {
    const item = place.children[i] ?? place.appendChild(streamItem());
    const [name, rows, lag, long, lost] = item.children;
    if (item.dataset.state !== stream.state) item.dataset.state = stream.state;
    say(name, stream.name);
    // of a stream of agents what they send, which is not every row that they have
    const sent = stream.updates_per_second;
    say(rows, sent === null ? `${compact(stream.rows_per_second)} rows/s` : `${compact(sent)} updates/s`);
    say(lag, stream.lag_seconds === null ? "" : `${duration(stream.lag_seconds)} behind`);
    say(long, isLong(stream) ? `in a batch for ${duration(stream.running_seconds)}` : "");
    say(lost, lostWords(stream).join(", "));
    const title = streamWords(stream);
    if (item.title !== title) item.title = title;
  });
}

function streamItem() {
  const item = make("li");
  item.append(make("span", "stream-name"), make("span", "stream-rows"), make("span", "stream-lag"), make("span", "stream-long"), make("span", "stream-lost"));
  return item;
}

/** Whether a batch runs for longer than they do: until it is done nothing that is shown moves. */
function isLong({ running_seconds: running = null, batch_seconds: last }) {
  return running !== null && running > Math.max(LONG_S, LONG * (last ?? 0));
}

/** Rows that no answer rests on. */
function lostWords({ late, unreadable }) {
  return [late ? `${compact(late)} late` : "", unreadable ? `${compact(unreadable)} unreadable` : ""].filter(Boolean);
}

function streamWords(stream) {
  const parts = [`${stream.name} is ${stream.state}, batch ${stream.batch}`];
  if (stream.batch_seconds !== null) parts.push(`the last one took ${duration(stream.batch_seconds)}`);
  if (stream.progress !== null) parts.push(`${Math.round(stream.progress * 100)} % read`);
  return parts.join(", ");
}

/** The banner of a lost connection; a short one is not worth a word. */
export const banners = {
  waiting: null,
  /** Why it was lost the last time, and whether the run was over: that may change while it is tried again. */
  words: "",
  over: false,

  lost(frame, { refused }) {
    const over = frame !== null && frame.mode === "live" && ["ended", "stopped"].includes(frame.phase);
    const words = over
      ? "The run is over and its service is gone. This is how it was at last."
      : refused
        ? "The service wants another token. Put the right one into the address, after #token=."
        : "The service does not answer. What is shown may be old; the page keeps trying.";
    [this.words, this.over] = [words, over];
    if (!byId("lost").hidden) say(byId("lost"), words);
    this.waiting ??= setTimeout(() => {
      say(byId("lost"), this.words);
      byId("lost").hidden = false;
      // what was there at the end of a run does not grow old
      document.documentElement.dataset.lost = this.over ? "over" : "yes";
    }, LOST_AFTER_MS);
  },

  back() {
    clearTimeout(this.waiting);
    this.waiting = null;
    byId("lost").hidden = true;
    delete document.documentElement.dataset.lost;
  },
};

/** Says to readers of the screen what has happened: now and then, and not every name of many. */
export class Announcer {
  #met = new Map();
  #timer = null;
  /** By what they are about: sentences that are about to be said. */
  #saying = new Map();
  #due = false;

  /** Says a sentence, after those that are said at the same time, in place of one about the same thing; empty: none of it. */
  say(text, about = text) {
    if (!text) return void this.#saying.delete(about);
    this.#saying.set(about, text);
    if (this.#due) return;
    this.#due = true;
    // the same words once more are nothing new to a reader of the screen, unless there were none in between
    for (const place of document.querySelectorAll(".announce")) say(place, "");
    setTimeout(() => this.#speak(), TICK_MS);
  }

  /** Each dialog has a place of its own, for all that is outside of one that is open is hidden from readers of the screen. */
  #speak() {
    this.#due = false;
    // the question for the token, which may come above another one, is the last
    const home = [...document.querySelectorAll("dialog:modal")].at(-1) ?? document.body;
    home.querySelector(":scope > .announce").textContent = [...this.#saying.values()].join(" ");
    this.#saying.clear();
  }

  /** Queries whose contracts were met or broken with a frame. */
  turned(queries) {
    for (const query of queries) this.#met.set(query.name, query.met);
    if (this.#met.size && this.#timer === null) this.#timer = setTimeout(() => this.#tell(), QUIET_MS);
  }

  #tell() {
    const names = (met) => [...this.#met].filter(([, now]) => now === met).map(([name]) => name);
    const parts = [];
    const [broken, kept] = [names(false), names(true)];
    if (broken.length) parts.push(`Contract not met: ${some(broken)}.`);
    if (kept.length) parts.push(`Contract met again: ${some(kept)}.`);
    this.#met.clear();
    this.#timer = null;
    this.say(parts.join(" "));
  }
}

/** Some of many names, and how many more there are. */
export function some(names) {
  const more = names.length - MOST_NAMES;
  return names.slice(0, MOST_NAMES).join(", ") + (more > 0 ? ` and ${more} more` : "");
}
