/** The time of a recording: a slider over its frames, a button that plays them, and keys for both. */

import { duration, say, when } from "./format.js";

const TICK_MS = 100;
const byId = (name) => document.getElementById(name);

export class Scrubber {
  constructor({ chosen }) {
    this.chosen = chosen;
    this.recording = null;
    this.place = -1;
    this.reading = true;
    this.timer = null;
    this.now = 0;
    [this.play, this.time, this.says, this.speed] = [byId("play"), byId("time"), byId("time-says"), byId("speed")];
    this.play.addEventListener("click", () => this.toggle());
    this.time.addEventListener("input", () => this.choose(Number(this.time.value)));
    document.addEventListener("keydown", (event) => this.#key(event));
  }

  /** One more frame was read: the newest is shown until the reader chooses another. */
  grown(recording) {
    const atEnd = this.recording === null || this.place === Number(this.time.max);
    this.recording = recording;
    byId("scrubber").hidden = false;
    this.time.max = String(recording.frames.length - 1);
    if (atEnd) this.#go(recording.frames.length - 1);
    else this.#words();
  }

  /** All frames were read. */
  whole() {
    this.reading = false;
    if (this.recording !== null) this.#words();
  }

  /** Goes to a place that the reader has chosen; playing goes on from there. */
  choose(place) {
    const last = this.recording.frames.length - 1;
    const wanted = Math.max(0, Math.min(last, place));
    this.now = this.recording.times[wanted];
    this.#go(wanted);
  }

  toggle() {
    if (this.recording === null) return;
    if (this.timer !== null) return this.#stop();
    if (this.place >= this.recording.frames.length - 1) this.choose(0);
    this.now = this.recording.times[this.place];
    let before = performance.now();
    this.timer = setInterval(() => {
      const now = performance.now();
      this.now += ((now - before) / 1000) * Number(this.speed.value);
      before = now;
      const place = this.recording.placeOf(this.now);
      if (place !== this.place) this.#go(place);
      if (place >= this.recording.frames.length - 1) this.#stop();
    }, TICK_MS);
    this.#button(true);
  }

  #stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.#button(false);
  }

  #button(playing) {
    say(this.play, playing ? "Pause" : "Play");
  }

  #go(place) {
    this.place = place;
    this.time.value = String(place);
    this.#words();
    this.chosen(place);
  }

  #words() {
    const { times } = this.recording;
    const since = duration(times[this.place] - times[0]);
    const words = `${when(times[this.place])} UTC · ${since} of ${duration(times.at(-1) - times[0])}`;
    say(this.says, this.reading ? `${words}, reading` : words);
    this.time.setAttribute("aria-valuetext", words);
    const part = this.place / Math.max(1, times.length - 1);
    this.time.style.setProperty("--part", `${(100 * part).toFixed(1)}%`);
  }

  #key(event) {
    if (this.recording === null || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    // fields, dialogs and what scrolls have keys of their own, and so has the slider, but for Space
    const own = event.target === this.time && event.key === " ";
    if (!own && event.target.closest?.("input, textarea, select, dialog, [tabindex='0']")) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      this.choose(this.place + step);
    } else if (event.key === " " && !event.target.closest?.("button, summary, a")) {
      event.preventDefault();
      this.toggle();
    }
  }
}
