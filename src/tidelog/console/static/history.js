// The last 24 hours of brokers: charts of what their admin ports keep.

import { current, setParams } from "./address.js";
import { chart, pointsOf } from "./chart.js";
import { h } from "./dom.js";
import { bytes, compact, count, rate } from "./format.js";
import { panel } from "./parts.js";

const FORMATS = {
  bytes: (value) => bytes(value),
  rate,
  count: (value) => count(Math.round(value * 10) / 10),
  ms: (value) => `${compact(Math.round(value * 10) / 10)} ms`,
  cores: (value) => value.toFixed(2),
};

const MINUTE = 60_000;
// The names of the spans in the page's address; a chart of fewer data spans those.
const SPANS = { "15m": ["15 min", 15 * MINUTE], "1h": ["1 h", 60 * MINUTE], "6h": ["6 h", 360 * MINUTE], "": ["24 h", 1440 * MINUTE] };
const span = () => current().params.get("span") ?? "";

/** Return the buttons that choose how much time the charts of this page span. */
export const spans = () =>
  h("div", { class: "choices", role: "group", "aria-label": "Time span of the charts" },
    Object.entries(SPANS).map(([name, [text]]) =>
      h("button", { type: "button", class: "quiet", key: `span-${name}`, "aria-pressed": String(name === span()), on: { click: () => setParams({ span: name }) } }, text)));

/** Return the series of a chart with the points of the chosen span, which ends with the newest one. */
export function within(series) {
  const [, length] = SPANS[span()] ?? SPANS[""];
  const end = Math.max(...series.flatMap((each) => each.points.map(([at]) => at)));
  return series.map((each) => ({ ...each, points: each.points.filter(([at]) => at >= end - length) }));
}

/** Return the charts of a document's `history`, and why some brokers are missing. */
export const history = ({ note, charts }) =>
  h("div", { class: "page" },
    note && h("p", { class: "nothing" }, note),
    spans(),
    h("div", { class: "charts" }, charts.map((each) =>
      panel(each.title, chart({
        label: each.label, format: FORMATS[each.unit], fromZero: true,
        series: within(each.series.map(({ name, runs }) => ({ name, points: pointsOf(runs) }))),
        nothing: note ? "No broker returns a history of this."
          : "No broker has a history of this yet: the first values come with two readings, ten seconds apart.",
      })))));
