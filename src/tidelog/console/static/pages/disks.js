// Log directories of all brokers: health and fill.

import { h } from "../dom.js";
import { bytes, count } from "../format.js";
import { findings, page, state } from "../parts.js";
import { table } from "../table.js";

export const title = () => "Disks";

export function render(doc) {
  return page("Disks", null,
    doc.silent.length > 0 && h("ul", { class: "conditions" }, doc.silent.map((each) =>
      h("li", { class: "warn" }, state("warn", `Broker ${each.broker} does not report its directories: ${each.text}`)))),
    findings(doc),
    table({
      caption: "Log directories", data: doc.table, key: (row) => `${row.broker} ${row.path}`,
      columns: [
        { title: "Broker", sort: "broker", default: "broker", number: true, cell: (row) => String(row.broker) },
        { title: "Directory", sort: "path", class: "mono wide", cell: (row) => row.path },
        { title: "Health", sort: "health", cell: (row) => state(row.level, row.health) },
        { title: "Replicas", sort: "replicas", number: true, cell: (row) => [count(row.replicas), row.lost > 0 && state("bad", ` ${count(row.lost)} lost`)] },
        { title: "Arriving", sort: "arriving", number: true, level: 3, cell: (row) => count(row.arriving) },
        { title: "Logs", sort: "size", number: true, cell: (row) => bytes(row.size) },
        { title: "Volume used", sort: "fill", number: true, level: 2, cell: (row) => fill(row) },
        { title: "Free", sort: "usable", number: true, level: 2, cell: (row) => bytes(row.usable) },
      ],
    }));
}

const fill = (row) => (row.fill === null ? "–" : h("span", { class: "meter-cell" },
  h("meter", { min: 0, max: 1, low: 0.75, high: 0.9, optimum: 0, value: String(row.fill), "aria-label": "share of the volume in use" }),
  h("span", null, ` ${Math.round(row.fill * 100)} % of ${bytes(row.total)}`)));
