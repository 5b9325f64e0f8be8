/** A field for SQL with line numbers, that marks the word at which something is wrong. */

import { watchEdges } from "./edges.js";
import { make, say } from "./format.js";

const INDENT = "  ";
const byId = (name) => document.getElementById(name);

export class Editor {
  constructor({ changed }) {
    [this.field, this.under, this.gutter] = [byId("sql"), byId("under"), byId("gutter")];
    this.marked = null;
    this.look = watchEdges(this.field);
    this.field.addEventListener("input", () => {
      this.mark(null);
      changed();
    });
    this.field.addEventListener("scroll", () => this.#scroll());
    this.field.addEventListener("keydown", (event) => this.#key(event));
  }

  get text() {
    return this.field.value;
  }

  set text(text) {
    this.field.value = text;
    this.mark(null);
  }

  /** Marks the word at a line and column, both counted from 1, and goes there; null: none. */
  mark(place) {
    this.marked = place;
    this.#number();
    const found = place === null ? null : wordAt(this.text, place.line, place.column);
    this.under.replaceChildren();
    if (found === null) return this.field.removeAttribute("aria-invalid");
    const { start, end } = found;
    // a place behind the end still needs something to be underlined
    this.under.append(this.text.slice(0, start), make("mark", "", this.text.slice(start, end) || " "), this.text.slice(end));
    this.field.setAttribute("aria-invalid", "true");
    this.field.focus({ preventScroll: true });
    this.field.setSelectionRange(start, start);
    this.#reveal(this.under.querySelector("mark"));
    this.#scroll();
  }

  /** Scrolls the field so that the marked word is seen: browsers do not do that for a selection. */
  #reveal(mark) {
    const { field } = this;
    const [top, left] = [mark.offsetTop, mark.offsetLeft];
    const [bottom, right] = [top + mark.offsetHeight, left + mark.offsetWidth];
    const line = mark.offsetHeight;
    // a line more above and below, so that it stands in its context
    if (top - line < field.scrollTop) field.scrollTop = top - line;
    else if (bottom + line > field.scrollTop + field.clientHeight) field.scrollTop = bottom + line - field.clientHeight;
    if (left < field.scrollLeft || right > field.scrollLeft + field.clientWidth) field.scrollLeft = Math.max(0, left - field.clientWidth / 3);
  }

  /** Line numbers; built anew only when there are more or fewer of them. */
  #number() {
    const count = this.text.split("\n").length;
    while (this.gutter.children.length > count) this.gutter.lastElementChild.remove();
    while (this.gutter.children.length < count) this.gutter.append(make("div", "", String(this.gutter.children.length + 1)));
    [...this.gutter.children].forEach((line, i) => {
      const wrong = this.marked !== null && this.marked.line === i + 1;
      line.classList.toggle("wrong", wrong);
      say(line, String(i + 1));
    });
    this.#scroll();
  }

  #scroll() {
    this.gutter.style.transform = `translateY(${-this.field.scrollTop}px)`;
    this.under.style.transform = `translate(${-this.field.scrollLeft}px, ${-this.field.scrollTop}px)`;
    this.look();
  }

  /** A new line begins below the one before it. Tab stays what it is: the way to the next field. */
  #key(event) {
    if (event.key !== "Enter" || event.ctrlKey || event.metaKey || event.shiftKey || event.isComposing) return;
    const before = this.text.slice(0, this.field.selectionStart);
    const line = before.slice(before.lastIndexOf("\n") + 1);
    const own = /^ */.exec(line)[0];
    const deeper = /\bAS\s*$/i.test(line) ? own + INDENT : own;
    if (!deeper) return;
    event.preventDefault();
    const text = `\n${deeper}`;
    // as if it were typed, so that it can be undone, and what was typed before it
    if (document.execCommand("insertText", false, text)) return;
    this.field.setRangeText(text, this.field.selectionStart, this.field.selectionEnd, "end");
    this.field.dispatchEvent(new Event("input"));
  }
}

/** Where the word at a line and column starts and ends; null where there is no such line. */
export function wordAt(text, line, column) {
  const lines = text.split("\n");
  if (line < 1 || line > lines.length) return null;
  // columns count characters, offsets of a text count halves of some of them
  const within = [...lines[line - 1]].slice(0, column - 1).join("").length;
  const start = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0) + within;
  const word = /^(?:[\p{L}\p{N}_.]+|'[^'\n]*'?|[^\s])/u.exec(text.slice(start));
  return { start, end: start + (word === null ? 0 : word[0].length) };
}
