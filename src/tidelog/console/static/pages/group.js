// One group: members, what each partition lags by, and which one holds the group back.

import { href } from "../address.js";
import { changeButton } from "../change.js";
import { chart } from "../chart.js";
import { h } from "../dom.js";
import { count } from "../format.js";
import { crumbs, figures, lag, missing, page, panel, partitionLink, state, topicLink } from "../parts.js";
import { table } from "../table.js";
import { groupState } from "./groups.js";

export const title = (params) => `Group ${params.get("name")}`;

export function render(doc) {
  if (doc.missing) return missing("Group", doc.missing);
  return page(doc.group, crumbs(h("a", { href: href("groups") }, "Groups"), doc.group),
    !doc.is_readable && h("p", { class: "conditions" }, state("warn", "The coordinator did not describe this group in the last reading.")),
    figures([
      ["State", groupState(doc.state)],
      ["Lag", lag(doc.lag)],
      ["Members", count(doc.members.length)],
      ["Assignor", doc.assignor || "–"],
      ["Coordinator", `broker ${doc.coordinator}`],
    ]),
    h("p", { class: "choices" }, changeButton({
      label: "Reset offsets", action: "reset", title: `Reset offsets of ${doc.group}`,
      text: "The group must have no members. Offsets stay within the log.",
      fields: [{ name: "to", label: "To: earliest, latest, an offset, or a time such as 2026-01-31T12:00", required: true, value: "earliest" },
        { name: "topic", label: "Topic (all, if empty)" }],
      body: ({ to, topic }) => ({ group: doc.group, to, topic }),
    })),
    doc.held_back && h("ul", { class: "conditions" }, h("li", { class: "warn" }, state("warn", `Held back: ${doc.held_back}.`))),
    h("div", { class: "columns" },
      panel("Lag over time", chart({ label: "unread records", series: [{ name: "lag", points: doc.history }], fromZero: true })),
      panel("Members", members(doc))),
    table({
      caption: "Partitions", data: doc.table, key: (row) => `${row.topic}-${row.partition}`,
      columns: [
        { title: "Topic", sort: "topic", class: "wide", cell: (row) => topicLink(row.topic) },
        { title: "Partition", sort: "partition", number: true, cell: (row) => partitionLink(row.topic, row.partition, String(row.partition)) },
        { title: "Committed", sort: "committed", number: true, cell: (row) => (row.committed === null ? "nothing" : count(row.committed)) },
        { title: "End", sort: "end", number: true, level: 2, cell: (row) => count(row.end) },
        { title: "Lag", sort: "lag", default: "-lag", number: true, cell: (row) => lag(row.lag) },
        { title: "Member", sort: "member", level: 2, class: "mono", cell: (row) => row.member ?? "–" },
      ],
    }));
}

function members(doc) {
  if (!doc.members.length) return h("p", { class: "nothing" }, "The group has no members now.");
  return h("ul", { class: "members" }, doc.members.map((each) => h("li", { key: each.member },
    h("p", { class: "name" }, each.client, h("small", null, ` ${each.host}`)),
    h("p", { class: "mono" }, each.member),
    h("p", null, each.partitions === null ? "an assignment that is not a consumer's" : `${count(each.partitions)} partitions, lag ${lag(each.lag)}`))));
}
