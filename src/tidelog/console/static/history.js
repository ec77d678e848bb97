// The last 24 hours of brokers: charts of what their admin ports keep.

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

/** Return the charts of a document's `history`, and why some brokers are missing. */
export const history = ({ note, charts }) =>
  h("div", { class: "page" },
    note && h("p", { class: "nothing" }, note),
    h("div", { class: "charts" }, charts.map((each) =>
      panel(each.title, chart({
        label: each.label, format: FORMATS[each.unit], fromZero: true,
        series: each.series.map(({ name, runs }) => ({ name, points: pointsOf(runs) })),
        nothing: note ? "No broker returns a history of this."
          : "No broker has a history of this yet: the first values come with two readings, ten seconds apart.",
      })))));
