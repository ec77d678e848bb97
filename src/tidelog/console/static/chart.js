// Line charts as SVG: one line for each series, scaled together; the same numbers as a text.

import { h } from "./dom.js";
import { clock, compact, duration } from "./format.js";

const WIDTH = 600;
const HEIGHT = 120;

/** Return a chart of [{name, points: [[ms, value], ...]}]; `label` says what it shows. */
export function chart({ label, series, format = compact, fromZero = false }) {
  const lines = series.filter((each) => each.points.length > 1);
  if (!lines.length) {
    return h("figure", { class: "chart" }, h("figcaption", null, label),
      h("p", { class: "nothing" }, "The chart begins with the samples of this console's process."));
  }
  const points = lines.flatMap((each) => each.points);
  const times = points.map(([at]) => at);
  const values = points.map(([, value]) => value);
  const [start, end] = [Math.min(...times), Math.max(...times)];
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (fromZero) low = Math.min(0, low);
  if (low === high) [low, high] = low > 0 ? [low - 1, high + 1] : [low, high + 1];
  const x = (at) => ((at - start) / Math.max(1, end - start)) * WIDTH;
  const y = (value) => HEIGHT - ((value - low) / (high - low)) * HEIGHT;
  const last = lines.map((each) => `${each.name} ${format(each.points.at(-1)[1])}`).join(", ");
  return h("figure", { class: "chart" },
    h("figcaption", null, label,
      h("ul", { class: "legend" }, lines.map((each, index) =>
        h("li", { class: `series-${index % 6}` }, each.name, " ", h("b", null, format(each.points.at(-1)[1])))))),
    h("div", { class: "plot" },
      h("div", { class: "scale", "aria-hidden": "true" }, h("span", null, format(high)), h("span", null, format(low))),
      h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
                 "aria-label": `${label}, the last ${duration(end - start)}: ${last}` },
        [0, 0.5, 1].map((part) => h("line", { class: "rule", x1: 0, x2: WIDTH, y1: HEIGHT * part, y2: HEIGHT * part })),
        lines.map((each, index) =>
          h("polyline", { class: `series-${index % 6}`, points: each.points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ") })))),
    h("div", { class: "span", "aria-hidden": "true" }, h("span", null, clock(start).slice(0, -4)), h("span", null, clock(end).slice(0, -4))));
}

/** Return the growth a second between successive points, smoothed over `window` points. */
export function growth(points, window = 5) {
  const found = [];
  for (let index = window; index < points.length; index += 1) {
    const [from, before] = points[index - window];
    const [to, value] = points[index];
    found.push([to, Math.max(0, value - before) * 1000 / Math.max(1, to - from)]);
  }
  return found;
}
