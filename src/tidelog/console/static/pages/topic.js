// One topic: its partitions, its readers, and records over time.

import { href } from "../address.js";
import { chart, growth } from "../chart.js";
import { h } from "../dom.js";
import { bytes, compact, count, rate } from "../format.js";
import { glossary, term } from "../glossary.js";
import { spans, within } from "../history.js";
import { brokers, crumbs, figures, lag, missing, page, panel, partitionLink, partitionState, state } from "../parts.js";
import { table } from "../table.js";

export const title = (params) => `Topic ${params.get("name")}`;

export function render(doc) {
  if (doc.missing) return missing("Topic", doc.missing);
  return page(doc.topic, h("span", null, crumbs(h("a", { href: href("topics") }, "Topics"), doc.topic)),
    h("p", { class: "choices" }, h("a", { href: href("records", { topic: doc.topic }) }, "Read records"),
      h("a", { href: href("configuration", { of: "topic", name: doc.topic }) }, "Configuration")),
    figures([
      ["Records in", rate(doc.rate)],
      ["Size of leaders", bytes(doc.size)],
      [term("min.insync.replicas"), doc.min_isr === null ? "–" : count(doc.min_isr)],
      ["Topic id", h("code", null, doc.topic_id)],
    ]),
    h("div", { class: "columns" },
      panel("Records in over time", spans(), chart({ label: "records a second", series: within([{ name: "in", points: [...doc.day, ...growth(doc.history)] }]), format: rate, fromZero: true })),
      panel("Groups", doc.groups.length
        ? h("ul", { class: "readers tall" }, doc.groups.map((each) => h("li", { key: each.group },
            h("a", { href: href("group", { name: each.group }) }, each.group), " lags by ", h("b", null, lag(each.lag)))))
        : h("p", { class: "nothing" }, "No group has committed offsets of this topic."))),
    table({
      caption: "Partitions", data: doc.table, key: (row) => row.partition,
      columns: [
        { title: "Partition", sort: "partition", default: "partition", number: true, cell: (row) => partitionLink(doc.topic, row.partition, String(row.partition)) },
        { title: "State", sort: "state", cell: (row) => partitionState(row.state) },
        { title: "Leader", sort: "leader", number: true, cell: (row) => leader(row) },
        { title: h("abbr", { title: "leader epoch" }, "Epoch"), sort: "leader_epoch", number: true, level: 2, cell: (row) => count(row.leader_epoch) },
        { title: "Replicas", sort: "replicas", cell: (row) => brokers(row.replicas, (id) => row.isr.includes(id)) },
        { title: term("ELR"), sort: "elr", level: 3, cell: (row) => brokers(row.elr) },
        { title: term("High watermark"), sort: "end", number: true, cell: (row) => count(row.end) },
        { title: "Size", sort: "size", number: true, level: 2, cell: (row) => bytes(row.size) },
        { title: "Largest lag", sort: "lag", number: true, level: 2, cell: (row) => (row.lag === null ? "–" : compact(row.lag)) },
        { title: "Moves to", level: 3, cell: (row) => (row.moving_to ? brokers(row.moving_to) : "–") },
      ],
    }),
    glossary("ISR", "ELR", "High watermark", "Lag", "Leader epoch", "Preferred leader", "min.insync.replicas"));
}

function leader(row) {
  if (row.leader === null) return state("bad", "none");
  if (row.leader === row.preferred) return String(row.leader);
  return h("span", { title: `broker ${row.preferred} is preferred` }, `${row.leader} `, h("small", null, `not ${row.preferred}`));
}
