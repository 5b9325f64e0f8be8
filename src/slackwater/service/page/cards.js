/** All queries as cards: search, sort and filter over a thousand of them without building anything twice. */

import { awayIn } from "./agents.js";
import { Card } from "./card.js";
import { number, say } from "./format.js";

/** So long after the last letter it is said how many queries were found. */
const TYPING_MS = 500;
const SORT_EVERY_MS = 3_000;
/** So long after the pointer was moved over the cards they stay where they are. */
const HAND_MS = 4_000;
/** Answers that are right as they are. */
const EXACT = new Set(["exact", "subset"]);
const byId = (name) => document.getElementById(name);

/** One for all: each that is made for a comparison costs more than the comparison. */
const { compare } = new Intl.Collator("en", { numeric: true });
const ORDERS = {
  name: (a, b) => compare(a.key, b.key),
  error: (a, b) => largestFirst(errorOf(a), errorOf(b)),
  load: (a, b) => largestFirst(a.frame.load ?? -1, b.frame.load ?? -1),
  met: (a, b) => rank(a.frame) - rank(b.frame),
};
const largestFirst = (a, b) => (a === b ? 0 : b > a ? 1 : -1);
const rank = (frame) => (frame.met === false || frame.suspended ? 0 : frame.met === null ? 1 : 2);

/** How wrong the last answer may be, relative to it; what has no bound comes before all that has one. */
export function errorOf({ frame, series }) {
  if (frame.suspended) return Infinity;
  if (frame.error !== null) return frame.error;
  const last = series.newest;
  // around 0, and where an agent that is away leaves no interval
  const unbounded = last !== undefined && !EXACT.has(last.how) && !(last.low === last.high);
  return unbounded ? Infinity : (frame.expected_error ?? -1);
}

export class Cards {
  #typing = 0;
  /** Who was away with the last frame. */
  #gone = "";

  constructor({ open, fill, announce }) {
    this.open = open;
    this.fill = fill;
    this.announce = announce;
    this.cards = new Map();
    this.list = byId("cards");
    this.shore = byId("shore");
    this.template = byId("card");
    this.text = "";
    this.order = "name";
    this.unmetOnly = false;
    this.sortedAt = 0;
    this.handAt = -Infinity;
    this.awaited = new Set();
    this.until = () => null;
    this.away = () => "";
    this.observer = new IntersectionObserver((entries) => this.#seen(entries), { rootMargin: "240px", scrollMargin: "240px" });
    this.#listen();
  }

  /** Shows a state of the run; ``changed`` are the names of queries that are not as before, null for any. */
  show(state, until, changed = null) {
    this.until = until;
    const fresh = this.#sync(state.queries);
    this.away = (query) => awayIn(state.frame, query.frame.stream);
    const gone = state.frame.agents.map(({ stream }) => awayIn(state.frame, stream)).join();
    // who else is away is said by cards that say nothing else anew
    const all = changed === null || gone !== this.#gone;
    this.#gone = gone;
    for (const [name, card] of this.cards) {
      if (!card.inView) continue;
      // an answer over current values stands until now, and now moves
      const moves = all || changed.has(name) || card.query.frame.kind === "current";
      if (!moves) continue;
      card.show(until(card.query), this.away(card.query));
      if (!card.query.filled) this.#fill(card);
    }
    const unmet = [...this.cards.values()].filter((card) => rank(card.query.frame) === 0).length;
    say(byId("unmet-count"), String(unmet));
    if (fresh) {
      this.arrange();
      return this.#revealed();
    }
    const moves = this.order !== "name" || this.unmetOnly;
    if (moves && performance.now() - this.sortedAt > SORT_EVERY_MS && !this.#inUse()) this.arrange();
  }

  /** Puts cards in order and hides those that were not asked for; moves only what is not in its place. */
  arrange() {
    this.sortedAt = performance.now();
    const before = ORDERS[this.order];
    const sorted = [...this.cards.values()].sort((a, b) => before(a.query, b.query) || ORDERS.name(a.query, b.query));
    const focused = this.list.contains(document.activeElement) ? document.activeElement : null;
    let place = this.list.firstElementChild;
    let shown = 0;
    for (const card of sorted) {
      if (card.element === place) place = place.nextElementSibling;
      else this.list.insertBefore(card.element, place);
      const hidden = !this.#asked(card.query);
      if (card.element.hidden !== hidden) card.element.hidden = hidden;
      shown += hidden ? 0 : 1;
    }
    const holder = focused?.closest(".card");
    if (holder?.hidden) this.#leave(holder);
    // one that is moved loses the focus
    else if (focused !== null && document.activeElement !== focused) focused.focus({ preventScroll: true, focusVisible: false });
    const all = this.cards.size;
    this.found = `${shown === all ? "" : `${number(shown)} of `}${number(all)} quer${all === 1 ? "y" : "ies"}`;
    say(byId("count"), shown === all ? String(all) : `${shown} of ${all}`);
    const empty = byId("empty");
    empty.hidden = shown > 0;
    if (!shown) say(empty, all ? "No query is like that." : "No query is declared yet.");
  }

  /** Says how many were found, when nobody types any more. */
  #tell() {
    clearTimeout(this.#typing);
    this.#typing = setTimeout(() => this.announce(this.found, this), TYPING_MS);
  }

  /** Brings queries into view that have just been registered, as soon as they are there. */
  reveal(names) {
    this.awaited = new Set(names.map((name) => name.toLowerCase()));
    this.#revealed();
  }

  #revealed() {
    for (const card of this.cards.values()) {
      if (!this.awaited.delete(card.query.key)) continue;
      if (card.element.hidden) this.#showAll();
      card.element.scrollIntoView({ block: "nearest" });
      card.element.classList.add("fresh");
      card.element.addEventListener("animationend", () => card.element.classList.remove("fresh"), { once: true });
    }
  }

  /** No search and no filter. */
  #showAll() {
    byId("search").value = this.text = "";
    this.unmetOnly = false;
    byId("unmet").setAttribute("aria-pressed", "false");
    this.arrange();
  }

  #asked(query) {
    if (this.unmetOnly && rank(query.frame) !== 0) return false;
    if (!this.text) return true;
    return `${query.key} ${query.frame.contract.toLowerCase()} ${query.frame.stream.toLowerCase()}`.includes(this.text);
  }

  /** Cards for queries that have come, none for those that are gone; true where there were any. */
  #sync(queries) {
    let fresh = false;
    for (const [name, card] of this.cards) {
      if (queries.get(name) === card.query) continue;
      this.observer.unobserve(card.element);
      if (card.element.contains(document.activeElement)) this.#leave(card.element);
      card.remove();
      this.cards.delete(name);
      fresh = true;
    }
    for (const [name, query] of queries) {
      if (this.cards.has(name)) continue;
      const card = new Card(query, this.template);
      this.cards.set(name, card);
      this.list.append(card.element);
      this.observer.observe(card.element);
      fresh = true;
    }
    return fresh;
  }

  /** Gives the focus on from a card that goes: to the next one that is shown, or else to all of them. */
  #leave(element) {
    // one that nobody has seen yet has no button
    const opener = (each) => (each.hidden ? null : each.querySelector(".open"));
    const nearest = (next) => {
      let one = element[next];
      while (one !== null && opener(one) === null) one = one[next];
      return one && opener(one);
    };
    (nearest("nextElementSibling") ?? nearest("previousElementSibling") ?? byId("queries")).focus({ preventScroll: true });
  }

  #seen(entries) {
    for (const { target, isIntersecting } of entries) {
      const { card } = target;
      card.seen(isIntersecting, this.until(card.query), this.away(card.query));
      if (isIntersecting) this.#fill(card);
    }
  }

  /** What was before the first point that is known. */
  #fill(card) {
    this.fill(card.query, () => card.show(this.until(card.query), this.away(card.query), true));
  }

  /** Cards do not move below a hand that moves, or where somebody goes by keys; a pointer that rests holds nothing up. */
  #inUse() {
    const hand = this.list.matches(":hover") && performance.now() - this.handAt < HAND_MS;
    return hand || this.list.querySelector(":focus-visible") !== null;
  }

  #listen() {
    const search = byId("search");
    let asked = 0;
    search.addEventListener("input", () => {
      cancelAnimationFrame(asked);
      asked = requestAnimationFrame(() => {
        this.text = search.value.trim().toLowerCase();
        this.arrange();
        this.#tell();
        this.shore.scrollTop = 0;
      });
    });
    byId("sort").addEventListener("change", (event) => {
      this.order = event.target.value;
      this.arrange();
      this.shore.scrollTop = 0;
    });
    byId("unmet").addEventListener("click", (event) => {
      this.unmetOnly = !this.unmetOnly;
      event.currentTarget.setAttribute("aria-pressed", String(this.unmetOnly));
      this.arrange();
      this.#tell();
    });
    for (const move of ["pointermove", "pointerdown", "wheel"]) {
      this.list.addEventListener(move, () => (this.handAt = performance.now()), { passive: true });
    }
    this.list.addEventListener("click", (event) => {
      const found = event.target.closest(".card");
      if (found) this.open(found.card.query);
    });
    document.addEventListener("keydown", (event) => {
      const typing = event.target.closest?.("input, textarea, select, dialog");
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        search.focus();
        search.select();
      } else if (event.key === "Escape" && event.target === search && search.value) {
        search.value = "";
        search.dispatchEvent(new Event("input"));
      }
    });
  }
}
