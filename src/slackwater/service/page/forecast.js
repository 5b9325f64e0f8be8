/** What a preview says: the load and the level as they would be, the errors to be expected, and the plan. */

import { watchEdges } from "./edges.js";
import { make, seconds, share } from "./format.js";
import { Picture } from "./picture.js";

const WAITING = "Previewing: new queries are tried on rows that come next.";
const EMPTY =
  "Preview shows the shared plan with the change in it, and the error that every query is to expect. " +
  "Nothing is changed by it.";

export class Forecast {
  constructor(place) {
    this.place = place;
    this.picture = null;
    this.clear();
  }

  /** Nothing has been asked. */
  clear() {
    this.#forget();
    this.stale(false);
    this.place.replaceChildren(make("p", "empty", EMPTY));
  }

  /** It has been asked for. */
  wait() {
    this.#forget();
    this.stale(false);
    this.place.replaceChildren(make("p", "empty", WAITING));
  }

  /** The SQL is another one by now. */
  stale(yes) {
    this.place.classList.toggle("stale", yes);
  }

  show(preview) {
    this.#forget();
    this.stale(false);
    this.place.replaceChildren(make("h3", "", did(preview)), loadOf(preview));
    if (preview.queries.length) this.place.append(tableOf(preview.queries));
    if (preview.notes.length) {
      const notes = this.place.appendChild(make("ul", "notes"));
      for (const note of preview.notes) notes.append(make("li", "", note));
    }
    this.place.append(this.#planOf(preview));
    this.place.scrollTop = 0;
  }

  #forget() {
    this.picture?.forget();
    this.picture = null;
  }

  #planOf(preview) {
    const section = make("section", "plan-of");
    const head = section.appendChild(make("div", "plan-head"));
    head.append(make("h4", "", "The shared plan with the change"));
    if (preview.plan_svg) {
      const holder = section.appendChild(make("div", "holder"));
      const frame = holder.appendChild(make("div", "picture"));
      frame.tabIndex = 0;
      frame.setAttribute("role", "region");
      frame.setAttribute("aria-label", "Picture of the plan");
      this.picture = new Picture(frame, "The shared plan with the change; the same is below as text");
      this.picture.show(preview.plan_svg, [...preview.creates, ...preview.alters]);
      watchEdges(frame);
      head.append(sizeOf(this.picture, frame));
    }
    const text = section.appendChild(make("details", "plan-text"));
    text.append(make("summary", "", "As text"), make("pre", "", preview.plan));
    return section;
  }
}

/** A button that shows a picture as large as it is drawn, or as wide as its frame again; a click on it does the same. */
function sizeOf(picture, frame) {
  const button = make("button", "quiet small", "Full size");
  button.type = "button";
  const turn = (full) => {
    button.setAttribute("aria-pressed", String(full));
    picture.fit(!full);
  };
  const other = () => turn(button.getAttribute("aria-pressed") !== "true");
  button.addEventListener("click", other);
  frame.addEventListener("click", other);
  turn(false);
  return button;
}

function did({ creates, alters, drops }) {
  const parts = [["Creates", creates], ["Alters", alters], ["Drops", drops]];
  const said = parts.filter(([, names]) => names.length).map(([word, names]) => `${word} ${names.join(", ")}`);
  return said.length ? said.join("; ") : "Changes nothing";
}

/** Load against capacity and the level, before and after. */
function loadOf({ load, load_before: before, capacity, level, level_before: levelBefore }) {
  const list = make("dl", "would");
  const fact = (name, from, to) => {
    const group = list.appendChild(make("div"));
    group.append(make("dt", "", name), make("dd", "", from === to || from === "–" ? to : `${from} → ${to}`));
  };
  fact("load", seconds(before), seconds(load));
  if (capacity !== null) fact("capacity", seconds(capacity), seconds(capacity));
  fact("level ℓ", fixed(levelBefore), fixed(level));
  return list;
}

const fixed = (value) => (value === null ? "–" : value.toFixed(2));

function tableOf(queries) {
  const table = make("table", "predicted");
  table.append(make("caption", "visually-hidden", "What each query would get"));
  const head = table.createTHead().insertRow();
  for (const word of ["query", "contract", "kept", "error to expect", "met"]) {
    const cell = head.appendChild(make("th", "", word));
    cell.scope = "col";
  }
  const body = table.createTBody();
  for (const query of queries) {
    const row = body.insertRow();
    if (query.fresh) row.className = "new";
    const name = row.appendChild(make("th", "", query.query));
    name.scope = "row";
    row.insertCell().textContent = query.contract;
    row.insertCell().textContent = query.suspended ? "suspended" : share(query.rate);
    row.insertCell().textContent = errorOf(query);
    const met = row.insertCell();
    met.className = `met ${query.met}`;
    met.textContent = { true: "✓", false: "✗", null: "·" }[query.met];
    met.setAttribute("aria-label", { true: "met", false: "not met", null: "not known" }[query.met]);
  }
  return table;
}

function errorOf({ error, error_before: before }) {
  const words = (value) => (value === 0 ? "none" : share(value));
  if (error === null) return "–";
  return before === null || words(before) === words(error) ? words(error) : `${words(before)} → ${words(error)}`;
}
