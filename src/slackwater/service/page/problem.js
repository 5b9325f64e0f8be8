/** What was wrong, as the command line says it: the message, the line with a pointer below the word, the hint. */

import { make } from "./format.js";

/** Shows a problem in its place; null hides it. */
export function showProblem(place, problem) {
  place.hidden = problem === null;
  place.replaceChildren();
  if (problem === null) return;
  const lines = problem.message.split("\n");
  place.append(make("p", "says", lines.shift()));
  // where there is a place in the SQL, the line and the pointer come next
  if (problem.line != null && lines.length >= 2 && lines[1].trim() === "^") {
    place.append(make("pre", "pointed", lines.splice(0, 2).map((line) => line.replace(/^ {2}/, "")).join("\n")));
  }
  const rest = lines.join("\n");
  if (rest) place.append(make("p", "more", rest));
  if (problem.hint && !problem.message.includes(problem.hint)) place.append(make("p", "more", `hint: ${problem.hint}`));
}
