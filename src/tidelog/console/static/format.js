// Numbers, sizes and times as texts. A missing value is an en dash, never a zero.

export const NONE = "–";
const numbers = new Intl.NumberFormat("en-US");
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const known = (value) => value !== null && value !== undefined;

// Whole numbers beyond 2^53 come as strings of digits, because a number would be rounded.
const exact = (value) => (typeof value === "string" ? BigInt(value) : value);
const isExact = (value) => typeof value === "number";

/** Return a - b as a number, where both may be strings of digits. */
export const difference = (a, b) => (isExact(a) && isExact(b) ? a - b : Number(BigInt(a) - BigInt(b)));
/** Return a + change, where a may be a string of digits; then the sum is a whole number, too. */
export const sum = (a, change) => (isExact(a) ? a + change : String(BigInt(a) + BigInt(Math.round(change))));

export const count = (value) => (known(value) ? numbers.format(exact(value)) : NONE);
export const compact = (value) =>
  known(value) ? (Math.abs(value) < 10_000 ? numbers.format(value) : short.format(exact(value))) : NONE;

export function rate(value) {
  if (!known(value)) return NONE;
  if (value > 0 && value < 10) return `${value.toFixed(1)}/s`;
  return `${compact(Math.round(value))}/s`;
}

export function bytes(value) {
  if (!known(value)) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function duration(ms) {
  if (!known(ms)) return NONE;
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1_000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86_400) {
    return `${Math.floor(seconds / 3_600)} h ${Math.round((seconds % 3_600) / 60)} min`;
  }
  return `${Math.floor(seconds / 86_400)} d ${Math.round((seconds % 86_400) / 3_600)} h`;
}

export const ago = (ms, now) => (known(ms) ? `${duration(Math.max(0, now - ms))} ago` : NONE);

const two = (value) => String(value).padStart(2, "0");

/** Return a time of day with milliseconds, and the date unless it is that of `now`. */
export function clock(ms, now = Date.now()) {
  if (!known(ms)) return NONE;
  const at = new Date(ms);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const exact = `${time}.${String(at.getMilliseconds()).padStart(3, "0")}`;
  if (at.toDateString() === new Date(now).toDateString()) return exact;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${exact}`;
}

export const iso = (ms) => {
  const at = new Date(ms);
  return known(ms) && !Number.isNaN(at.getTime()) ? at.toISOString() : undefined;
};

export const list = (values) => (values?.length ? values.join(", ") : NONE);
export const words = (text) => String(text).replaceAll("_", " ");
