// All groups with their lag.

import { count } from "../format.js";
import { groupLink, lag, page, state, topicLink } from "../parts.js";
import { h } from "../dom.js";
import { table } from "../table.js";

export const title = () => "Groups";

const LEVELS = { Stable: "good", Empty: "note", Dead: "note", PreparingRebalance: "warn", CompletingRebalance: "warn" };
export const groupState = (text) => (text ? state(LEVELS[text] ?? "note", text) : "–");

export function render(doc) {
  return page("Groups", null, doc.silent.length > 0 && h("ul", { class: "conditions" }, doc.silent.map((each) =>
    h("li", { class: "warn" }, state("warn", `Groups of broker ${each.broker} may be missing: ${each.text}`)))), table({
    caption: "Groups", data: doc.table, key: (row) => row.group, empty: "The cluster has no group yet.",
    columns: [
      { title: "Group", sort: "group", class: "wide", cell: (row) => groupLink(row.group) },
      { title: "State", sort: "state", cell: (row) => groupState(row.state) },
      { title: "Members", sort: "members", number: true, cell: (row) => count(row.members) },
      { title: "Lag", sort: "lag", default: "-lag", number: true, cell: (row) => lag(row.lag) },
      { title: "Topics", sort: "topics", level: 2, cell: (row) => topics(row.topics) },
      { title: "Assignor", sort: "assignor", level: 3, cell: (row) => row.assignor || "–" },
      { title: "Coordinator", sort: "coordinator", number: true, level: 3, cell: (row) => String(row.coordinator) },
    ],
  }));
}

const topics = (names) => (names.length ? h("span", null, names.slice(0, 4).map((name, index) => [index ? ", " : null, topicLink(name)]),
  names.length > 4 && ` and ${names.length - 4} more`) : "–");
