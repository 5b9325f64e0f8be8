/** The sliders of the demo: times the load and times the tolerance, by powers of ten. */

import { change } from "./api.js";
import { say } from "./format.js";

const SEND_EVERY_MS = 200;
/** So long after the reader's hand the slider stays where it was put: the run needs a moment to follow. */
const HAND_MS = 2_500;
const byId = (name) => document.getElementById(name);

/** A slider whose value is ten to the power of where it stands. */
class Slider {
  constructor(name, moved) {
    this.input = byId(`${name}-knob`);
    this.says = byId(`${name}-knob-says`);
    this.held = false;
    this.touchedAt = -Infinity;
    this.input.addEventListener("pointerdown", () => (this.held = true));
    for (const end of ["pointerup", "pointercancel", "change", "blur"]) {
      this.input.addEventListener(end, () => (this.held = false));
    }
    this.input.addEventListener("input", () => {
      this.touchedAt = performance.now();
      this.#words(this.value);
      moved(this.value);
    });
  }

  get value() {
    return Number((10 ** Number(this.input.value)).toPrecision(3));
  }

  /** Where the run has it, unless a hand is on it. */
  show(value) {
    if (this.held || performance.now() - this.touchedAt < HAND_MS) return;
    const place = Math.log10(value).toFixed(2);
    if (this.input.value !== place) this.input.value = place;
    this.#words(value);
  }

  #words(value) {
    const times = value >= 10 ? value.toFixed(0) : value.toFixed(1);
    say(this.says, `×${times}`);
    this.input.setAttribute("aria-valuetext", `${times} times`);
    const { min, max } = this.input;
    this.input.style.setProperty("--part", `${((100 * (Math.log10(value) - min)) / (max - min)).toFixed(1)}%`);
  }
}

export class KnobsPanel {
  constructor() {
    this.wanted = {};
    this.timer = null;
    this.sentAt = -Infinity;
    this.storyAt = -Infinity;
    this.story = byId("story-knob");
    this.load = new Slider("load", (load) => {
      // who moves the load by hand tells his own story
      this.story.checked = false;
      this.storyAt = performance.now();
      this.#want({ load, story: false });
    });
    this.tolerance = new Slider("tolerance", (tolerance) => this.#want({ tolerance }));
    this.story.addEventListener("change", () => {
      this.storyAt = performance.now();
      this.#want({ story: this.story.checked });
    });
    byId("knobs").addEventListener("submit", (event) => event.preventDefault());
  }

  /** Shows where the sliders stand; null outside the demo. */
  show(knobs) {
    const place = byId("knobs");
    if (place.hidden !== (knobs === null)) place.hidden = knobs === null;
    if (knobs === null) return;
    this.load.show(knobs.load);
    this.tolerance.show(knobs.tolerance);
    if (performance.now() - this.storyAt > HAND_MS && this.story.checked !== knobs.story) this.story.checked = knobs.story;
    say(byId("chapter"), knobs.chapter);
  }

  #want(more) {
    Object.assign(this.wanted, more);
    const wait = Math.max(0, this.sentAt + SEND_EVERY_MS - performance.now());
    this.timer ??= setTimeout(() => this.#send(), wait);
  }

  async #send() {
    this.sentAt = performance.now();
    const wanted = this.wanted;
    this.wanted = {};
    const trouble = byId("knobs-trouble");
    try {
      await change("PUT", "/api/knobs", wanted);
      trouble.hidden = true;
    } catch (problem) {
      // what a hand has done while the token was asked for is not wanted without it either
      if (problem.status === 401) this.wanted = {};
      say(trouble, problem.message);
      trouble.hidden = false;
    } finally {
      this.timer = null;
      if (Object.keys(this.wanted).length) this.#want({});
    }
  }
}
