/** Numbers and times for the eye, as the command line writes them. */

const NONE = "–";
/** The column of answers that are rows, whose columns are the keys. */
export const ROW = "*";

/** Thousands marked, to so many digits; whole numbers in full, as far as they are known to their last digit. */
export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return NONE;
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  const rounded = Number(size.toPrecision(digits));
  if (!Number.isSafeInteger(value) && (rounded < 1e-4 || size >= 1e15)) return powered(Math.sign(value) * rounded);
  const decimals = Number.isInteger(value) ? 0 : Math.max(0, digits - wholeDigits(size));
  return signed(value.toLocaleString("en", { maximumFractionDigits: decimals }));
}

/** Digits before the point; below 1 less than one, by the zeros behind it. */
const wholeDigits = (size) => (size ? Math.floor(Math.log10(size)) + 1 : 1);

/** With a power of ten, whose digits are two at least: 1.5e-09, 2e+18. */
const powered = (value) => signed(value.toExponential().replace(/(?<=e[+-])\d$/, "0$&"));

/** With the sign of a number before it, and not a hyphen. */
const signed = (text) => text.replace(/^-/, "−");

/** A count in about so many digits: 1.23k, 45.6M, 1.2e+22; ``round`` is Math.floor or Math.ceil for a bound. */
export function compact(value, digits = 3, round = null) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  let [left, unit] = [value, ""];
  for (const next of "kMGTPE") {
    if (Math.abs(left) < 999.5) break;
    [left, unit] = [left / 1000, next];
  }
  const size = Math.abs(left);
  // beyond the last unit, and where its digits would all be zeros
  if (size >= 999.5) return powered(rounding(value, digits, round));
  if (!unit && size < 1 && size > 0 && round === null) return number(left, digits);
  const whole = Math.max(1, wholeDigits(size));
  const decimals = unit || !Number.isInteger(left) ? Math.max(0, digits - whole) : 0;
  const rounded = round === null ? left : round(left * 10 ** decimals) / 10 ** decimals;
  return signed(rounded.toFixed(decimals)) + unit;
}

/** A number of so many digits. */
function rounding(value, digits, round) {
  if (round === null) return Number(value.toPrecision(digits));
  const power = wholeDigits(Math.abs(value)) - digits;
  return Number(`${round(value / 10 ** power)}e${power}`);
}

/** A tick of an axis: compact, without zeros that say nothing. */
export function tick(value, digits = 3) {
  if (Math.abs(value) < 1) return number(Number(value.toPrecision(digits - 1)), digits);
  return compact(value, digits).replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");
}

/** The ticks of an axis, with as many digits as say each where it stands. */
export function ticks(values) {
  const step = Math.abs(values.at(-1) - values[0]) / Math.max(1, values.length - 1);
  for (const digits of [3, 4, 5, 6]) {
    const said = values.map((value) => Number(value.toPrecision(Math.abs(value) < 1 ? digits - 1 : digits)));
    if (values.every((value, n) => Math.abs(value - said[n]) <= step / 100)) return values.map((value) => tick(value, digits));
  }
  return values.map((value) => number(value, 6));
}

/** A share in percent, with up to three digits. */
export function share(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return NONE;
  if (!Number.isFinite(value)) return "∞";
  return `${Number((value * 100).toPrecision(value >= 0.9995 ? 4 : 3))} %`;
}

/** A short time, in the unit that suits it. */
export function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) {
    if (Math.abs(value) >= size) return `${Number((value / size).toPrecision(3))} ${unit}`;
  }
  return value === 0 ? "0 s" : `${Number((value / 1e-9).toPrecision(3))} ns`;
}

/** A length of time: 250 ms, 1.6 s, 1 min 15 s. */
export function duration(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${Number(value.toPrecision(2))} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
  return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
}

/** The time of day in UTC of seconds since 1970. */
export function clock(at) {
  return new Date(at * 1000).toISOString().slice(11, 19);
}

/** The same with its day where that is not today. */
export function when(at) {
  const day = new Date(at * 1000).toISOString().slice(0, 10);
  return day === new Date().toISOString().slice(0, 10) ? clock(at) : `${day} ${clock(at)}`;
}

/** From one time to another. */
export function span(from, to) {
  const [first, last] = [when(from), when(to)];
  // the day is said once where it is the same
  const sameDay = Math.floor(from / 86_400) === Math.floor(to / 86_400);
  return `from ${first} to ${sameDay ? clock(to) : last} UTC`;
}

/** Seconds since 1970 of a time as JSON has it. */
export function moment(text) {
  return Date.parse(text) / 1000;
}

/** Group keys: host=a port=80. A text that could be taken for no value has quotes. */
export function keys(group) {
  const shown = (value) => (value === null ? "NULL" : /^(null|".*)?$/is.test(value) ? JSON.stringify(value) : value);
  return Object.entries(group ?? {}).map(([name, value]) => `${name}=${shown(keyText(value))}`).join(" ");
}

/** What tells a group from all others of its query, whether a frame says it or an answer. */
export function groupOf(group) {
  return JSON.stringify(Object.entries(group ?? {}).map(([name, value]) => [name, keyText(value)]));
}

/** A group key as a text, null for NULL: lists and structs are texts in frames, and JSON in answers. */
export function keyText(value) {
  return value === null || typeof value === "string" ? value : JSON.stringify(value);
}

/** A value with its interval, for a reader of the screen or a hover. */
export function interval(value, low, high) {
  if (Number.isNaN(value) || value === null) return NONE;
  if (low === null || Number.isNaN(low) || (low === value && high === value)) return number(value, 6);
  return `${number(value, 6)} [${number(low, 6)}, ${number(high, 6)}]`;
}

/** Sets a text only where it is another one: nothing is laid out anew for nothing. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Makes an element with its class and text. */
export function make(tag, style = "", text = "") {
  const element = document.createElement(tag);
  if (style) element.className = style;
  if (text) element.textContent = text;
  return element;
}
