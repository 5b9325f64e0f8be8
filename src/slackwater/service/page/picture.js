/** A plan that the service has drawn, in a frame that scrolls, and in the page's colours. */

import { isDark } from "./colours.js";
import { make } from "./format.js";
import { colour, onColours } from "./palette.js";

export class Picture {
  #svg = "";
  #names = [];

  constructor(frame, words, style = "") {
    this.frame = frame;
    this.image = make("img", style);
    this.image.alt = words;
    this.unlisten = onColours(() => this.#svg && (this.image.src = addressOf(this.#svg)));
  }

  /** Shows a picture with the box of the first name that it has in the middle, or else with its first box. */
  show(svg, names = []) {
    [this.#svg, this.#names] = [svg, names];
    this.image.addEventListener("load", () => this.#goTo(), { once: true });
    this.image.src = addressOf(svg);
    this.frame.replaceChildren(this.image);
  }

  /** As wide as its frame, or as large as it is drawn. */
  fit(fitted) {
    this.image.classList.toggle("fitted", fitted);
    this.#goTo();
  }

  /** No longer follows the colours. */
  forget() {
    this.unlisten();
  }

  #goTo() {
    const drawn = new DOMParser().parseFromString(this.#svg, "image/svg+xml");
    const titles = [...drawn.querySelectorAll("text.title")];
    const found = titles.find((title) => this.#names.includes(title.textContent));
    const box = found ?? titles[0];
    const width = Number(drawn.documentElement.getAttribute("width"));
    if (!box || !width) return;
    const size = this.image.clientWidth / width;
    this.frame.scrollLeft = size * Number(box.getAttribute("x")) - (found ? this.frame.clientWidth / 2.5 : 40);
    this.frame.scrollTop = size * Number(box.getAttribute("y")) - this.frame.clientHeight / 2;
    // also where it needs not move, what is beyond its edges may be something else
    this.frame.dispatchEvent(new Event("scroll"));
  }
}

/** The picture as an address for an image. */
function addressOf(svg) {
  const query = isDark() ? "@media all" : "@media not all";
  const own = [
    `.page { fill: ${colour("surface")} }`,
    `.box { fill: ${colour("raised")}; stroke: ${colour("edge")} }`,
    `.edge { stroke: ${colour("edge")} }`,
    `.rule { stroke: ${colour("line")} }`,
    `text, .title { fill: ${colour("ink")} }`,
    `.quiet { fill: ${colour("quiet")} }`,
    `.stream, .step, .query { fill: ${colour("water")} }`,
  ].join("\n");
  const drawn = svg.replace("@media (prefers-color-scheme: dark)", query).replace("</style>", `${own}\n</style>`);
  return `data:image/svg+xml,${encodeURIComponent(drawn)}`;
}
