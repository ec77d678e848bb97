// Line charts as SVG: one line for each series, scaled together; the same numbers as a text.

import { h } from "./dom.js";
import { compact, difference, duration, sum } from "./format.js";

const WIDTH = 600;
const HEIGHT = 120;
const NOTHING = "The chart begins with the samples of this console's process.";

/** Return a chart of [{name, points: [[ms, value], ...]}]; a null value is a gap of the line. */
export function chart({ label, series, format = compact, fromZero = false, nothing = NOTHING }) {
  const lines = series.filter((each) => each.points.filter(([, value]) => value !== null).length > 1);
  if (!lines.length) {
    return h("figure", { class: "chart" }, h("figcaption", null, label), h("p", { class: "nothing" }, nothing));
  }
  const points = lines.flatMap((each) => each.points).filter(([, value]) => value !== null);
  const times = points.map(([at]) => at);
  // Values are drawn by their differences from the first one: offsets beyond 2^53 are no numbers.
  const origin = points[0][1];
  const zero = difference(0, origin);
  const values = points.map(([, value]) => difference(value, origin));
  const [start, end] = [Math.min(...times), Math.max(...times)];
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (fromZero) low = Math.min(zero, low);
  if (low === high) [low, high] = low > zero ? [low - 1, high + 1] : [low, high + 1];
  const x = (at) => ((at - start) / Math.max(1, end - start)) * WIDTH;
  const y = (value) => HEIGHT - ((difference(value, origin) - low) / (high - low)) * HEIGHT;
  const marks = ticks(start, end);
  const newest = (each) => format(each.points.findLast(([, value]) => value !== null)[1]);
  const last = lines.map((each) => `${each.name} ${newest(each)}`).join(", ");
  return h("figure", { class: "chart" },
    h("figcaption", null, label,
      h("ul", { class: "legend" }, lines.map((each, index) =>
        h("li", { class: `series-${index % 6}` }, each.name, " ", h("b", null, newest(each)))))),
    h("div", { class: "plot" },
      h("div", { class: "scale", "aria-hidden": "true" }, h("span", null, format(sum(origin, high))), h("span", null, format(sum(origin, low)))),
      h("div", { class: "drawing" },
        h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
                   "aria-label": `${label}, the last ${duration(end - start)}: ${last}` },
          [0, 0.5, 1].map((part) => h("line", { class: "rule", x1: 0, x2: WIDTH, y1: HEIGHT * part, y2: HEIGHT * part })),
          marks.map((at) => h("line", { class: "rule", x1: x(at).toFixed(1), x2: x(at).toFixed(1), y1: 0, y2: HEIGHT })),
          lines.map((each, index) => unbroken(each.points).map((run) =>
            h("polyline", { class: `series-${index % 6}`, points: run.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ") })))),
        h("div", { class: "times", "aria-hidden": "true" }, marks.map((at) =>
          h("span", { style: { left: `${(x(at) / WIDTH * 100).toFixed(2)}%` } }, timeOfDay(at, end - start)))))));
}

/** Return the points between gaps; one point alone becomes a short line. */
function unbroken(points) {
  const runs = [[]];
  for (const point of points) {
    if (point[1] !== null) runs.at(-1).push(point);
    else if (runs.at(-1).length) runs.push([]);
  }
  return runs.filter((run) => run.length).map((run) => (run.length > 1 ? run : [run[0], run[0]]));
}

const MINUTE = 60_000;
const STEPS = [1_000, 5_000, 15_000, 30_000, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, 60 * MINUTE,
  120 * MINUTE, 240 * MINUTE, 360 * MINUTE, 720 * MINUTE, 1440 * MINUTE];

/** Return at most five round times, in the browser's time zone, between two times. */
export function ticks(start, end) {
  const step = STEPS.find((each) => (end - start) / each <= 5) ?? end - start;
  const zone = new Date(start).getTimezoneOffset() * MINUTE;
  const found = [];
  for (let at = Math.ceil((start - zone) / step) * step + zone; at <= end && step > 0; at += step) found.push(at);
  return found;
}

function timeOfDay(at, span) {
  const text = new Date(at).toTimeString();
  return text.slice(0, span < 5 * MINUTE ? 8 : 5);
}

/** Return the points of runs {start_s, step_s, values}, with a gap between two that do not meet. */
export function pointsOf(runs) {
  const points = [];
  let last = null;
  for (const { start_s, step_s, values } of runs) {
    // The day ends where the last minutes begin, with another step: that is no gap.
    if (last && start_s - last.end > 2 * Math.max(step_s, last.step)) points.push([start_s * 1000 - 1, null]);
    values.forEach((value, index) => points.push([(start_s + index * step_s) * 1000, value]));
    last = { end: start_s + values.length * step_s, step: step_s };
  }
  return points;
}

/** Return the growth a second between successive points, smoothed over `window` points. */
export function growth(points, window = 5) {
  const found = [];
  for (let index = window; index < points.length; index += 1) {
    const [from, before] = points[index - window];
    const [to, value] = points[index];
    found.push([to, Math.max(0, difference(value, before)) * 1000 / Math.max(1, to - from)]);
  }
  return found;
}
