/** Agents: how many messages they save, how wide their bounds are, and who is away. */

import { clock, compact, duration, make, moment, number, say, share } from "./format.js";

const MOST_DOTS = 120;
const MOST_WIDTHS = 6;
const MOST_AWAY = 4;
/** Agents that are named where it is said in a few words who is away. */
const MOST_NAMED = 2;
const byId = (name) => document.getElementById(name);

export class AgentsPanel {
  #blocks = new Map();

  show(frame) {
    const panel = byId("agents");
    const none = !frame.agents.length;
    if (panel.hidden !== none) panel.hidden = none;
    for (const [stream, block] of this.#blocks) {
      if (frame.agents.some((each) => each.stream === stream)) continue;
      block.element.remove();
      this.#blocks.delete(stream);
    }
    for (const agents of frame.agents) this.#block(agents.stream).show(agents, moment(frame.at));
    const [there, known] = ["there", "known"].map((field) => frame.agents.reduce((sum, each) => sum + each[field], 0));
    say(byId("agents-note"), there === known ? `all ${known} are there` : `${there} of ${known} are there`);
  }

  #block(stream) {
    if (!this.#blocks.has(stream)) {
      const block = new StreamOfAgents(stream);
      this.#blocks.set(stream, block);
      byId("agents-list").append(block.element);
    }
    return this.#blocks.get(stream);
  }
}

/** Who of the agents of a stream is away, in a few words; empty where all are there. */
export function awayIn({ agents }, stream) {
  const of = agents.find((each) => each.stream.toLowerCase() === stream.toLowerCase());
  // not all agents are told one by one
  const count = of ? of.known - of.there : 0;
  if (!count) return "";
  const names = of.agents.filter((agent) => !agent.there).map((agent) => agent.name);
  const more = count - Math.min(names.length, MOST_NAMED);
  const said = [...names.slice(0, MOST_NAMED), ...(more ? [`${number(more)} more`] : [])];
  return `${said.length > 1 ? `${said.slice(0, -1).join(", ")} and ${said.at(-1)}` : said[0]} ${count > 1 ? "are" : "is"} away`;
}

/** The agents of one stream. */
class StreamOfAgents {
  constructor(stream) {
    this.element = make("section", "of-stream");
    this.parts = {};
    const head = make("div", "of-stream-head");
    this.parts.dots = make("ul", "dots");
    this.parts.dots.setAttribute("aria-label", `Agents of ${stream}`);
    // what has no bullets is a list for some browsers only where it says so
    this.parts.dots.role = "list";
    head.append(make("h3", "", stream), this.parts.dots);
    const messages = make("p", "messages");
    this.parts.sent = make("strong");
    this.parts.instead = make("span");
    messages.append(this.parts.sent, this.parts.instead);
    this.parts.bar = make("div", "saving");
    this.parts.bar.setAttribute("aria-hidden", "true");
    this.parts.bar.append((this.parts.updates = make("span", "updates")), (this.parts.grants = make("span", "grants")));
    this.parts.key = make("ul", "parts");
    this.parts.key.role = "list";
    this.parts.key.append(...["updates", "grants", "saved"].map((name) => make("li", name)));
    const below = make("div", "below");
    below.append((this.parts.keys = make("span", "quiet")), (this.parts.away = make("ul", "away")));
    this.parts.away.role = "list";
    this.parts.away.setAttribute("aria-label", `Who of ${stream} is away`);
    this.parts.widths = make("table", "widths");
    this.parts.widths.append(caption(stream), headOf(["bounds of", "least", "middle", "most", "used of allowed"]), make("tbody"));
    this.parts.before = make("p", "quiet away-before");
    this.element.append(head, messages, this.parts.bar, this.parts.key, below, this.parts.before, this.parts.widths);
  }

  show(agents, now) {
    const { updates_per_second: updates, grants_per_second: grants, offered_per_second: offered } = agents;
    const sent = updates + grants;
    say(this.parts.keys, `${compact(agents.keys)} keys${agents.late ? `, ${compact(agents.late)} late` : ""}`);
    say(this.parts.sent, compact(sent));
    say(
      this.parts.instead,
      offered === null
        ? " messages a second; how many it would be is not known yet"
        : ` messages a second instead of ${compact(offered)}: ${offered > 0 ? share(Number((sent / offered).toPrecision(2))) : "–"}`,
    );
    this.parts.bar.dataset.known = offered === null ? "no" : "yes";
    const whole = offered === null ? Infinity : Math.max(offered, sent, 1e-9);
    this.parts.updates.style.width = `${((100 * updates) / whole).toFixed(1)}%`;
    this.parts.grants.style.width = `${((100 * grants) / whole).toFixed(1)}%`;
    const parts = [updates, grants, offered === null ? null : Math.max(0, offered - sent)];
    parts.forEach((size, i) => {
      const part = this.parts.key.children[i];
      say(part, size === null ? "" : `${compact(size)} ${part.className}`);
    });
    const title = `${number(updates, 3)} updates and ${number(grants, 3)} grants a second`;
    if (this.parts.sent.title !== title) this.parts.sent.title = title;
    this.#dots(agents);
    this.#away(agents, now);
    say(this.parts.before, interruptions(agents));
    this.#widths(agents.widths);
  }

  /** A dot for each agent, full where it is there, with its words for who does not see it; how many there are beside. */
  #dots({ agents, known }) {
    const shown = agents.slice(0, MOST_DOTS);
    const more = known - shown.length;
    rows(this.parts.dots, more > 0 ? [...shown, null] : shown, dotItem, (dot, agent) => {
      dot.className = agent === null ? "more" : "";
      dot.firstElementChild.className = agent === null ? "" : "visually-hidden";
      if (agent === null) {
        dot.title = "";
        return say(dot.firstElementChild, `and ${number(more)} more`);
      }
      const words = `${agent.name}: ${agent.there ? "there" : "away"}, ${compact(agent.keys)} keys, ${compact(agent.updates)} updates`;
      const offered = agent.offered_per_second;
      const title = offered === null ? words : `${words}; it would send ${compact(offered)} a second if it sent everything`;
      if (dot.title === title) return;
      dot.title = title;
      say(dot.firstElementChild, title);
      dot.dataset.there = agent.there ? "yes" : "no";
    });
  }

  #away({ agents, known, there }, now) {
    const away = agents.filter((agent) => !agent.there);
    const since = (agent) => (agent.since === null ? Infinity : moment(agent.since));
    const shown = away.toSorted((a, b) => since(a) - since(b)).slice(0, MOST_AWAY);
    const more = known - there - shown.length;
    rows(this.parts.away, more > 0 ? [...shown, null] : shown, () => make("li"), (item, agent) => {
      if (agent === null) return say(item, `and ${number(more)} more`);
      const long = agent.since === null ? "" : ` for ${duration(Math.max(1, Math.round(now - moment(agent.since))))}`;
      say(item, `${agent.name} has been away${long}`);
    });
  }

  #widths(widths) {
    this.parts.widths.hidden = !widths.length;
    rows(this.parts.widths.tBodies[0], widths.slice(0, MOST_WIDTHS), widthRow, (row, width) => {
      const [name, least, middle, most, used] = row.children;
      say(name, `${width.query}.${width.column}`);
      if (name.title !== name.textContent) name.title = name.textContent;
      say(least, number(width.smallest, 3));
      say(middle, number(width.median, 3));
      say(most, number(width.largest, 3));
      say(used.firstElementChild, `${number(width.used, 3)} of ${number(width.allowed, 3)}`);
      const part = width.used === null || !(width.allowed > 0) ? 0 : width.used / width.allowed;
      used.dataset.over = part > 1 ? "yes" : "no";
      used.lastElementChild.style.setProperty("--part", `${Math.min(100, 100 * part).toFixed(1)}%`);
    });
  }
}

/** How often agents were away, and when one was the last time; nothing where none has come back yet. */
function interruptions({ agents, interruptions: all, there, known }) {
  const over = agents.filter((agent) => agent.last_away);
  if (!over.length) return "";
  const { name, last_away: last } = over.reduce((one, other) => (moment(other.last_away.until) > moment(one.last_away.until) ? other : one));
  // of very many agents some are not told one by one
  const count = all || agents.reduce((sum, agent) => sum + (agent.interruptions ?? 0), 0);
  const [since, until] = [moment(last.since), moment(last.until)];
  const often = count > 1 ? `${compact(count)} interruptions, the last one${there < known ? " that is over" : ""}` : "1 interruption,";
  return `${often} of ${name} for ${duration(Math.max(1, Math.round(until - since)))}, ${clock(since)} to ${clock(until)}`;
}

function dotItem() {
  const item = make("li");
  item.append(make("span"));
  return item;
}

function widthRow() {
  const row = make("tr");
  const name = make("th");
  name.scope = "row";
  const used = make("td", "used");
  used.append(make("span"), make("i", "meter"));
  row.append(name, make("td"), make("td"), make("td"), used);
  return row;
}

function caption(stream) {
  return make("caption", "visually-hidden", `Widths that the agents of ${stream} hold`);
}

function headOf(words) {
  const head = make("thead");
  const row = head.appendChild(make("tr"));
  for (const word of words) {
    const cell = row.appendChild(make("th", "", word));
    cell.scope = "col";
  }
  return head;
}

/** As many elements as there are things, each shown in its own. */
export function rows(place, things, build, show) {
  while (place.children.length > things.length) place.lastElementChild.remove();
  things.forEach((thing, i) => show(place.children[i] ?? place.appendChild(build(thing)), thing, i));
}
