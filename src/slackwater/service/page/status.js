/** How the run is: its phase, its streams, what is wrong, and words for those who do not see the page. */

import { duration, say } from "./format.js";

const LOST_AFTER_MS = 1_200;
/** So long after it a banner moves the page, and hides nothing of it any more. */
const SETTLED_AFTER_MS = 10_000;
/** A run makes a frame each second; one that is told by hand may have this set before. */
const SILENT_AFTER_S = window.silentAfter ?? 5;
const QUIET_MS = 2_500;
/** After contracts were spoken of they are not for so long: some are met and broken with every answer. */
const AGAIN_MS = 20_000;
const MOST_NAMES = 3;
/** A place that has just come into view needs a moment before what is put into it is read. */
const TICK_MS = 100;
const byId = (name) => document.getElementById(name);

/** The phase, why a run has failed, and what is wrong with one that goes on. */
export function showPhase(frame) {
  const place = byId("phase");
  const phase = frame.mode === "recorded" ? "recorded" : frame.phase;
  if (place.dataset.phase !== phase) place.dataset.phase = phase;
  say(place, phase);
  say(byId("run-name"), frame.name ?? "");
  const title = frame.name ? `${frame.name} · Slackwater` : "Slackwater";
  if (document.title !== title) document.title = title;
  const failed = byId("failed");
  const wrong = frame.phase === "failed";
  say(failed, wrong ? `The run has failed: ${frame.message || "it gave no reason"}` : "");
  if (failed.hidden === wrong) failed.hidden = !wrong;
  say(byId("warning"), wrong || !frame.message ? "" : `Warning: ${frame.message}`);
}

/** The banner of a lost connection; a short one is not worth a word, and one that lasts hides nothing. */
export const banners = {
  waiting: null,
  settling: null,
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
      this.show(this.words, this.over);
      // what was there at the end of a run does not grow old
      document.documentElement.dataset.lost = this.over ? "over" : "yes";
    }, LOST_AFTER_MS);
  },

  /** The service of a recording has gone: its frames are here, and all else is not. */
  gone() {
    this.show("The service of this recording is gone. Cards and the tide line still go to any time; the plan stays as it is, and SQL and answers of queries cannot be looked up.", true);
  },

  show(words, settled) {
    const place = byId("lost");
    say(place, words);
    place.hidden = false;
    if (settled) place.classList.add("settled");
    else this.settling ??= setTimeout(() => place.classList.add("settled"), SETTLED_AFTER_MS);
  },

  back() {
    clearTimeout(this.waiting);
    clearTimeout(this.settling);
    [this.waiting, this.settling] = [null, null];
    byId("lost").hidden = true;
    byId("lost").classList.remove("settled");
    delete document.documentElement.dataset.lost;
  },
};

/** Says that a run that goes on tells nothing any more, though its service is there. */
export class Silence {
  #since = performance.now();
  #told = false;

  /** `expected`: whether news are to come at present. */
  constructor({ expected, announce }) {
    setInterval(() => this.#look(expected(), announce), 1_000);
    document.addEventListener("visibilitychange", () => this.broken());
  }

  /** Something has come, or it is known why nothing could. */
  broken() {
    this.#since = performance.now();
    this.#look(false);
  }

  #look(expected, announce) {
    const silent = (performance.now() - this.#since) / 1_000;
    const old = expected && !document.hidden && byId("lost").hidden && silent > SILENT_AFTER_S;
    say(byId("silent"), old ? `No news from the run for ${duration(Math.floor(silent))}; what is shown is old.` : "");
    // the seconds go on, and are said once
    if (old && !this.#told) announce("There is no news from the run; what is shown is old.");
    this.#told = old;
    document.documentElement.toggleAttribute("data-silent", old);
  }
}

/** Says to readers of the screen what has happened: now and then, and not every name of many. */
export class Announcer {
  /** By query: whether its contract is met, and whether it was when that was last known to the listener. */
  #met = new Map();
  #timer = null;
  #next = -Infinity;
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
    for (const { name, met } of queries) this.#met.set(name, { met, before: this.#met.get(name)?.before ?? !met });
    const wait = Math.max(QUIET_MS, this.#next - performance.now());
    if (this.#met.size && this.#timer === null) this.#timer = setTimeout(() => this.#tell(), wait);
  }

  #tell() {
    // one that is again as it was is no news
    const names = (met) => [...this.#met].filter(([, now]) => now.met === met && now.before !== met).map(([name]) => name);
    const parts = [];
    const [broken, kept] = [names(false), names(true)];
    if (broken.length) parts.push(`Contract not met: ${some(broken)}.`);
    if (kept.length) parts.push(`Contract met again: ${some(kept)}.`);
    this.#met.clear();
    this.#timer = null;
    if (!parts.length) return;
    this.#next = performance.now() + AGAIN_MS;
    this.say(parts.join(" "));
  }
}

/** Some of many names, and how many more there are. */
export function some(names) {
  const more = names.length - MOST_NAMES;
  return names.slice(0, MOST_NAMES).join(", ") + (more > 0 ? ` and ${more} more` : "");
}
