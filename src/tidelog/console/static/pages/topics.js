// All topics, with rates, sizes, and the lag of each group beside the topic.

import { href, setParams, current } from "../address.js";
import { h } from "../dom.js";
import { bytes, compact, count, rate } from "../format.js";
import { page, partitionState, topicLink } from "../parts.js";
import { table } from "../table.js";

export const title = () => "Topics";

export function render(doc) {
  const shown = current().params.get("internal") === "1";
  return page("Topics", `${count(doc.partitions)} partitions, ${rate(doc.rate)} in`,
    doc.internal > 0 && h("p", { class: "choices" },
      h("button", { type: "button", class: "quiet", "aria-pressed": String(shown), on: { click: () => setParams({ internal: shown ? "" : "1" }) } },
        `Internal topics (${doc.internal})`)),
    table({
      caption: "Topics", data: doc.table, key: (row) => row.topic, empty: "The cluster has no topic yet.",
      columns: [
        { title: "Topic", sort: "topic", default: "topic", class: "wide", cell: (row) => topicLink(row.topic) },
        { title: "State", sort: "under_replicated", cell: (row) => partitionState(row.state) },
        { title: "Partitions", sort: "partitions", number: true, cell: (row) => count(row.partitions) },
        { title: "Replicas", sort: "replicas", number: true, level: 3, cell: (row) => count(row.replicas) },
        { title: "Records", sort: "records", number: true, level: 2, cell: (row) => compact(row.records) },
        { title: "In", sort: "rate", number: true, cell: (row) => rate(row.rate) },
        { title: "Size", sort: "size", number: true, level: 2, cell: (row) => bytes(row.size) },
        { title: "Groups and their lag", sort: "lag", level: 2, cell: (row) => readers(row) },
      ],
    }));
}

function readers(row) {
  if (!row.groups.length) return "–";
  return h("ul", { class: "readers" },
    row.groups.map((each) => h("li", { key: each.group },
      h("a", { href: href("group", { name: each.group }) }, each.group), " ", h("b", null, each.lag === null ? "–" : compact(each.lag)))),
    row.more_groups > 0 && h("li", null, `and ${row.more_groups} more`));
}
