/** Requests to the service: with the token of the page's address, and problems as errors. */

import { ofTab } from "./store.js";

const KEPT = "slackwater-token";
/** Characters that a token can have: no header takes others. */
const PLAIN = /^[\x21-\x7e]+$/;
/** So long an answer may take to come. */
const PATIENCE_S = 30;
/** The same of what waits for others: some changes at a time, a trial on rows that have yet to come, and Spark's word. */
const LONG_PATIENCE_S = 300;
const LONG = new Set(["POST", "PATCH", "DELETE"]);
/** What the question for the token returns where it was answered. */
const GIVEN = "given";

/** What the service said was wrong (RFC 9457), with the place in the SQL where there is one. */
export class Problem extends Error {
  constructor(body) {
    super(body.detail || body.title || "the service gave no reason");
    this.status = body.status;
    this.line = body.line ?? null;
    this.column = body.column ?? null;
    this.offset = body.offset ?? null;
    this.hint = body.hint ?? "";
  }
}

/** Takes the token out of the address, so that it is in no bookmark and no history. */
export function takeToken() {
  // no form has made this address: "+" is no blank in it, and "&" no end
  const found = /(?:^#|&)token=(.*)$/s.exec(location.hash);
  if (found === null) return;
  history.replaceState(null, "", location.pathname + location.search);
  const dialog = document.getElementById("token");
  if (!useToken(decoded(found[1]))) askForToken(true);
  else if (dialog.open) dialog.close(GIVEN);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Who waits until another token is given. */
let awaited = Promise.withResolvers();

/** Takes a token; false, which is shown in the question for it, where it can be none. */
export function useToken(given) {
  const plain = PLAIN.test(given);
  document.getElementById("token-refused").hidden = plain;
  if (!plain) return false;
  ofTab.set(KEPT, given);
  awaited.resolve();
  awaited = Promise.withResolvers();
  return true;
}

/** The token that is used; null where there is none. */
export function token() {
  const kept = ofTab.get(KEPT);
  return kept !== null && PLAIN.test(kept) ? kept : null;
}

/** Comes to its end when another token is given. */
export const tokenGiven = () => awaited.promise;

export function headers(more = {}) {
  return token() ? { ...more, Authorization: `Bearer ${token()}` } : more;
}

/** The text of an answer and its headers; raises what the service says is wrong, or that it says nothing. */
async function request(method, path, body) {
  const given = body === undefined ? {} : { "Content-Type": "application/json" };
  const patience = LONG.has(method) ? LONG_PATIENCE_S : PATIENCE_S;
  let answer;
  let text;
  try {
    answer = await fetch(path, {
      method,
      headers: headers(given),
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      signal: AbortSignal.timeout(patience * 1000),
    });
    text = await answer.text();
  } catch (error) {
    const late = error.name === "TimeoutError";
    const detail = late ? `The service has not answered within ${patience} seconds.` : "The service does not answer. Is the run still there?";
    throw new Problem({ status: 0, detail });
  }
  if (answer.ok) return { text, headers: answer.headers };
  throw new Problem(problemOf(answer.status, text));
}

function problemOf(status, text) {
  const plain = { status, title: `the service answered ${status}` };
  try {
    return { ...plain, ...JSON.parse(text) };
  } catch {
    return plain;
  }
}

export const getJson = async (path) => JSON.parse(await getText(path));
/** Answers; numbers in their group keys stay as they are written, for 1.0 and 2^53 + 1 are no numbers of JavaScript's. */
export const getAnswers = async (path) => (await getCounted(path)).answers;
export const getText = async (path) => (await request("GET", path)).text;

/** The same, how many there are of which these are the first, and whether there may be more. */
export async function getCounted(path) {
  const { text, headers } = await request("GET", path);
  const [there, cut] = [Number(headers.get("X-Total-Count")), headers.get("X-Total-Count-Relation") === "gte"];
  return { answers: JSON.parse(text, keysAsWritten), there, cut };
}

function keysAsWritten(name, value, context) {
  // what an answer itself holds is drawn, and needs no more digits than there are
  const drawn = typeof value !== "number" || ("emitted_at" in this && "keys" in this);
  return drawn || context?.source === undefined ? value : JSON.rawJSON(context.source);
}

/** A request that changes something; where the token is missing it is asked for, once. */
export async function change(method, path, body) {
  try {
    return await sent(method, path, body);
  } catch (problem) {
    if (problem.status !== 401 || !(await askForToken(token() !== null))) throw problem;
    return sent(method, path, body);
  }
}

async function sent(method, path, body) {
  const { text } = await request(method, path, body);
  return text ? JSON.parse(text) : null;
}

/** Asks for the token; false where the reader has none. ``another``: the one that was given is not the right one. */
export function askForToken(another = false) {
  const dialog = document.getElementById("token");
  const [form, text] = [document.getElementById("token-form"), document.getElementById("token-text")];
  if (dialog.open) return Promise.resolve(false);
  return new Promise((resolve) => {
    form.onsubmit = (event) => {
      event.preventDefault();
      if (useToken(text.value.trim())) return dialog.close(GIVEN);
      text.value = "";
      text.focus();
    };
    document.getElementById("token-later").onclick = () => dialog.close("");
    dialog.onclose = () => resolve(dialog.returnValue === GIVEN);
    text.value = dialog.returnValue = "";
    document.getElementById("token-refused").hidden = !another;
    dialog.showModal();
  });
}
