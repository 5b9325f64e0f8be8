/** The streams at the top: name, state, rows a second, how far behind, and what is wrong with them. */

import { compact, duration, make, say } from "./format.js";

/** A batch is long beyond so many seconds, and so many times what the last one took. */
const LONG_S = 3;
const LONG = 2;
/** Streams that are shown at once; those with trouble come first, and the others when they are asked for. */
const SHOWN = 4;
const PARTS = ["name", "state", "rows", "lag", "long", "lost"];
const byId = (name) => document.getElementById(name);

export class StreamBar {
  #all = false;
  #streams = [];

  constructor() {
    this.more = byId("more-streams");
    this.more.addEventListener("click", () => {
      this.#all = !this.#all;
      this.show(this.#streams);
    });
  }

  show(streams) {
    this.#streams = streams;
    const place = byId("streams");
    const order = [...streams.filter(isTroubled), ...streams.filter((stream) => !isTroubled(stream))];
    const shown = this.#all ? order : order.slice(0, SHOWN);
    while (place.children.length > shown.length) place.lastElementChild.remove();
    shown.forEach((stream, i) => showStream(place.children[i] ?? place.appendChild(streamItem()), stream));
    const left = order.slice(SHOWN);
    this.more.hidden = !left.length;
    this.more.setAttribute("aria-expanded", String(this.#all));
    const troubled = left.filter(isTroubled).length;
    const words = `+${left.length} more${troubled ? `, ${troubled} with trouble` : ""}`;
    say(this.more, this.#all ? "fewer" : words);
    this.more.classList.toggle("troubled", !this.#all && troubled > 0);
  }
}

function showStream(item, stream) {
  const [name, state, rows, lag, long, lost] = item.children;
  if (item.dataset.state !== stream.state) item.dataset.state = stream.state;
  say(name, stream.name);
  say(state, stream.state === "running" ? "" : stream.state);
  // of a stream of agents what they send, which is not every row that they have
  const sent = stream.updates_per_second;
  say(rows, sent === null ? `${compact(stream.rows_per_second)} rows/s` : `${compact(sent)} updates/s`);
  say(lag, stream.lag_seconds === null ? "" : `${duration(stream.lag_seconds)} behind`);
  say(long, isLong(stream) ? `in a batch for ${duration(stream.running_seconds)}` : "");
  say(lost, lostWords(stream).join(", "));
  const title = streamWords(stream);
  if (item.title !== title) item.title = title;
}

function streamItem() {
  const item = make("li");
  item.append(...PARTS.map((part) => make("span", `stream-${part}`)));
  return item;
}

/** Whether there is something to see about a stream. */
function isTroubled(stream) {
  return stream.late > 0 || stream.unreadable > 0 || stream.state === "stopped" || isLong(stream);
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
