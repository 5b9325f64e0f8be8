/** The stream of frames: read through fetch, since an EventSource cannot send the token, and read again when it ends. */

import { askForToken, headers, token, tokenGiven } from "./api.js";

const SILENT_MS = 15_000;
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 5_000;
/** A page that nobody has looked at for so long follows no more: a browser has few connections for all its tabs. */
const HIDDEN_MS = 5_000;

/** Comes to its end when somebody looks at the page. */
function looked() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", function changed() {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", changed);
      resolve();
    });
  });
}

/** Calls `away` when the page has been hidden for a while; what it returns ends that. */
function whenHidden(away) {
  let timer = 0;
  const changed = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(away, HIDDEN_MS);
  };
  changed();
  document.addEventListener("visibilitychange", changed);
  return () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", changed);
  };
}

/** Splits a text of server-sent events into events, piece by piece. */
export class EventParser {
  #pieces = [];

  /** The events that are complete with this piece. */
  *take(piece) {
    this.#pieces.push(piece);
    // no line ends here, so no event does: a large frame is put together once and not with every piece of it
    if (!piece.includes("\n")) return;
    const blocks = this.#pieces.join("").replaceAll("\r\n", "\n").split("\n\n");
    this.#pieces = [blocks.pop()];
    for (const block of blocks) {
      const event = { id: null, name: "message", data: "" };
      for (const line of block.split("\n")) {
        const [field, text] = fieldOf(line);
        if (field === "id") event.id = text;
        else if (field === "event") event.name = text;
        else if (field === "data") event.data += event.data ? `\n${text}` : text;
      }
      if (event.data || event.name === "end") yield event;
    }
  }
}

/** A line as its field and what it says; whatever characters are in it, a separator of lines in a text among them. */
function fieldOf(line) {
  const colon = line.indexOf(":");
  if (colon < 0) return [line, ""];
  return [line.slice(0, colon), line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1)];
}

/**
 * Calls `seen` with every frame, for ever; `lost` with whether the token was refused, `back` when it works again.
 * While the page is hidden nothing is followed; it goes on after the last frame when somebody looks again.
 * A recorded run ends its stream by itself: `seen` returns false when it wants no more, and `ended` is called then.
 */
export async function follow({ seen, lost, back, ended = () => {}, after = null }) {
  let last = after;
  let wait = FIRST_WAIT_MS;
  /** The token that was refused, and that the reader has said to have no other. */
  let settled;
  for (;;) {
    const stop = new AbortController();
    let silence = setTimeout(() => stop.abort(), SILENT_MS);
    let resting = false;
    const watched = whenHidden(() => {
      resting = true;
      stop.abort();
    });
    let goesOn = true;
    let refused = false;
    try {
      const path = last === null ? "/api/events" : `/api/events?after=${last}`;
      const answer = await fetch(path, { headers: headers(), signal: stop.signal, cache: "no-store" });
      refused = answer.status === 401;
      if (!answer.ok) throw new Error(`the service answered ${answer.status}`);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new EventParser();
      back();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        clearTimeout(silence);
        silence = setTimeout(() => stop.abort(), SILENT_MS);
        for (const event of parser.take(value)) {
          if (event.name === "end") return ended();
          if (event.name !== "frame") continue;
          wait = FIRST_WAIT_MS;
          try {
            const frame = JSON.parse(event.data);
            last = event.id ?? frame.number;
            goesOn = seen(frame) !== false;
          } catch (error) {
            // a mistake of the page is not a lost connection: it is told, and the next frame is taken
            reportError(error);
          }
        }
      }
      if (!goesOn) return ended();
    } catch {
      // whatever it was, it is tried again
    } finally {
      clearTimeout(silence);
      watched();
    }
    if (resting) {
      await looked();
      continue;
    }
    if (refused && settled !== token()) {
      if (await askForToken(token() !== null)) continue;
      settled = token();
    }
    lost({ refused });
    await Promise.race([new Promise((resolve) => setTimeout(resolve, wait)), tokenGiven()]);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
}

/** Whether the service is there, asked for what costs it nothing. */
export async function isThere() {
  try {
    await fetch("/page/mark.svg", { cache: "no-store", signal: AbortSignal.timeout(SILENT_MS) });
    return true;
  } catch {
    return false;
  }
}
