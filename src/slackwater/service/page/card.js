/** One query as a card: filled when it comes into view, drawn only while it is there. */

import { BandChart } from "./band.js";
import { unbounded } from "./band_lines.js";
import { compact, keys, ROW, say, seconds, share } from "./format.js";

/** A number with its thousands marked. */
const LONG = /[−-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?/g;
/** A number alone, and the digits of one that are shown in full. */
const NUMBER = /^[−-]?[\d,]+(?:\.\d+)?$/;
const MOST_DIGITS = 14;
const WORDS = { true: ["✓", "contract met"], false: ["✗", "contract not met"], null: ["·", "no answer yet"] };

export class Card {
  constructor(query, template) {
    this.query = query;
    this.template = template;
    this.inView = false;
    this.chart = null;
    this.parts = null;
    this.hovered = null;
    this.element = document.createElement("li");
    this.element.className = "card";
    this.element.dataset.name = query.name;
    this.element.card = this;
    this.element.textContent = query.name;
  }

  /** Comes into view or leaves it. */
  seen(inView, until, away) {
    this.inView = inView;
    if (inView) return this.show(until, away, true);
    this.chart?.destroy();
    this.chart = null;
    // its chart will not say that the pointer has left it
    if (this.hovered !== null) this.#hover(null);
  }

  /** Shows the query as it is, and who of its agents is ``away``; nothing is done for a card that nobody sees. */
  show(until, away, anew = false) {
    if (!this.inView) return;
    if (this.parts === null) this.#build();
    const { frame, series } = this.query;
    const parts = this.parts;
    const [sign, words] = WORDS[String(frame.met)];
    const state = frame.suspended ? "suspended" : String(frame.met);
    if (this.element.dataset.met !== state) this.element.dataset.met = state;
    if (parts.met.dataset.sign !== sign) {
      parts.met.dataset.sign = sign;
      parts.met.textContent = sign;
      parts.met.setAttribute("aria-label", words);
      parts.met.title = words;
    }
    const open = openWords(series.newest, away);
    say(parts.how, howText(frame, open, away));
    if (parts.how.dataset.how !== parts.how.textContent) parts.how.dataset.how = parts.how.textContent;
    sayWhole(parts.contract, frame.contract);
    const isRow = frame.column === ROW;
    const [value, interval] = isRow ? [frame.last_text || "–", ""] : split(frame.last_text);
    const short = shortened(value);
    sayWhole(parts.value, short, value);
    parts.value.classList.toggle("row", isRow);
    sayWhole(parts.interval, open || fitting(short, interval), open || interval);
    parts.interval.classList.toggle("no-interval", open !== "");
    if (this.hovered === null) sayWhole(parts.of, ofText(frame));
    sayWhole(parts.error, errorText(frame));
    sayWhole(parts.kept, share(frame.rate));
    sayWhole(parts.load, frame.load === null ? (frame.missed ? `${compact(frame.missed)} missed` : "–") : seconds(frame.load));
    const fresh = this.chart === null;
    this.chart ??= new BandChart(parts.chart, { told: (text) => this.#hover(text) });
    if (fresh || anew || series.changed || frame.kind === "current") this.chart.show(this.query, until);
    series.changed = false;
  }

  remove() {
    // what was asked for on its behalf may still come
    this.inView = false;
    this.chart?.destroy();
    this.element.remove();
  }

  #build() {
    this.element.replaceChildren(this.template.content.cloneNode(true));
    const find = (name) => this.element.querySelector(name);
    this.parts = {
      met: find(".met"), how: find(".how"), contract: find(".contract"), value: find(".value"),
      interval: find(".interval"), of: find(".of"), chart: find(".chart"), error: find("dd.error"),
      kept: find("dd.kept"), load: find("dd.load"),
    };
    sayWhole(find(".open"), this.query.name);
  }

  #hover(text) {
    this.hovered = text;
    sayWhole(this.parts.of, text ?? ofText(this.query.frame));
    this.parts.of.classList.toggle("hovered", text !== null);
  }
}

/** A text, of which the whole is told on a look where it has no room. */
function sayWhole(element, text, whole = text) {
  say(element, text);
  if (element.title !== whole) element.title = whole;
}

/** Why an answer that bounds make has no interval; empty where it has one, or is known to be of nothing. */
export function openWords(answer, away) {
  if (!answer || answer.how !== "bounded" || answer.met || !unbounded(answer)) return "";
  return `no interval: ${away || "not all is known yet"}`;
}

/** How an answer was obtained; of one that is ``open``, why there is none. */
export function howText({ suspended, how }, open, away) {
  if (suspended) return "suspended";
  return open ? (away ? "interrupted" : "waiting") : (how ?? "waiting");
}

/** A number of more digits than a card has room for, in fewer. */
function shortened(value) {
  const long = NUMBER.test(value) && value.replace(/\D/g, "").length > MOST_DIGITS;
  return long ? compact(Number(value.replaceAll(",", "").replace("−", "-")), 6) : value;
}

/** "1,234 ± 5 (95%)" as value and interval. */
export function split(text) {
  const place = text.search(/ [±[]/);
  return place < 0 ? [text || "–", ""] : [text.slice(0, place), text.slice(place + 1)];
}

/** An interval in the room that its value leaves on a card: where both are long, thousands and millions are shortened. */
export function fitting(value, interval) {
  // pixels of a digit of each, and of the narrowest card
  const width = 13 * value.length + 7.5 * interval.length;
  if (width <= 250) return interval;
  // outwards, so that what is shortened still holds the value, and has two ends
  return interval.replace(LONG, (long, place) => {
    const size = Number(long.replaceAll(",", "").replace("−", "-"));
    return compact(size, 3, interval[place - 1] === "[" ? Math.floor : Math.ceil);
  });
}

/** What the answer is of: its column, its group, and of how many groups that is one. */
export function ofText(frame) {
  if (frame.column === ROW) return "the newest row";
  const parts = [frame.column ?? ""];
  const group = keys(frame.keys);
  if (group) parts.push(group);
  if (frame.groups > 1) parts.push(`one of ${compact(frame.groups)} groups`);
  return parts.filter(Boolean).join(" · ");
}

/** The error that is there, and the one to be expected where that is another. */
export function errorText(frame) {
  if (frame.error === null) return frame.expected_error === null ? "–" : `≈ ${share(frame.expected_error)}`;
  return frame.error === 0 ? "none" : share(frame.error);
}
