/** Requests to the service: with the token of the page's address, and problems as errors. */

const KEPT = "slackwater-token";
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
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found === null) return;
  useToken(found);
  history.replaceState(null, "", location.pathname + location.search);
  const dialog = document.getElementById("token");
  if (dialog.open) dialog.close(GIVEN);
}

/** Who waits until another token is given. */
let awaited = Promise.withResolvers();

export function useToken(given) {
  sessionStorage.setItem(KEPT, given);
  awaited.resolve();
  awaited = Promise.withResolvers();
}

/** The token that is used; null where there is none. */
export const token = () => sessionStorage.getItem(KEPT) || null;

/** Comes to its end when another token is given. */
export const tokenGiven = () => awaited.promise;

export function headers(more = {}) {
  return token() ? { ...more, Authorization: `Bearer ${token()}` } : more;
}

async function request(method, path, body) {
  const given = body === undefined ? {} : { "Content-Type": "application/json" };
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: headers(given),
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
    });
  } catch {
    throw new Problem({ status: 0, detail: "The service does not answer. Is the run still there?" });
  }
  if (answer.ok) return answer;
  throw new Problem(await problemOf(answer));
}

async function problemOf(answer) {
  const plain = { status: answer.status, title: `the service answered ${answer.status}` };
  try {
    return { ...plain, ...(await answer.json()) };
  } catch {
    return plain;
  }
}

export const getJson = async (path) => (await request("GET", path)).json();
/** Answers; numbers in their group keys stay as they are written, for 1.0 and 2^53 + 1 are no numbers of JavaScript's. */
export const getAnswers = async (path) => JSON.parse(await getText(path), keysAsWritten);
export const getText = async (path) => (await request("GET", path)).text();

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
  const text = await (await request(method, path, body)).text();
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
      useToken(text.value.trim());
      dialog.close(GIVEN);
    };
    document.getElementById("token-later").onclick = () => dialog.close("");
    dialog.onclose = () => resolve(dialog.returnValue === GIVEN);
    text.value = dialog.returnValue = "";
    document.getElementById("token-refused").hidden = !another;
    dialog.showModal();
  });
}
