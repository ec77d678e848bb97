// The timeline of cluster events, the latest first.

import { setParams } from "../address.js";
import { h } from "../dom.js";
import { count, words } from "../format.js";
import { glossary } from "../glossary.js";
import { page, partitionLink, state, time } from "../parts.js";
import { table } from "../table.js";

export const title = () => "Events";

export function render(doc, params) {
  const chosen = params.get("kind") ?? "";
  return page("Events", null,
    h("div", { class: "choices", role: "group", "aria-label": "Kinds of events" },
      choice("all", "", chosen), doc.kinds.map((each) => choice(`${words(each.kind)} (${count(each.count)})`, each.kind, chosen))),
    table({
      caption: "Timeline", data: doc.table, key: (row) => `${row.time_ms} ${row.kind} ${row.text}`, empty: "The events in memory are none.",
      columns: [
        { title: "Time", sort: "time_ms", cell: (row) => time(row.time_ms, doc.time_ms) },
        { title: "Kind", sort: "kind", cell: (row) => state(row.level, words(row.kind)) },
        { title: "What", class: "long", cell: (row) => row.text },
        { title: "Why", cell: (row) => (row.topic === null ? "–" : partitionLink(row.topic, row.partition)) },
        { title: "Reported by", sort: "reporter", number: true, level: 3, cell: (row) => row.reporter ?? "–" },
      ],
    }),
    glossary("ISR", "ELR", "Log end", "Leader epoch", "Partition epoch", "Controller epoch", "Broker epoch"));
}

const choice = (text, kind, chosen) =>
  h("button", { type: "button", class: "quiet", key: `kind-${kind}`, "aria-pressed": String(kind === chosen), on: { click: () => setParams({ kind, limit: "" }) } }, text);
