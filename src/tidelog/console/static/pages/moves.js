// Reassignments: progress, rate, time left, and what the queue waits for.

import { changeButton } from "../change.js";
import { h } from "../dom.js";
import { bytes, count, duration } from "../format.js";
import { brokers, figures, findings, page, partitionLink, state, topicLink } from "../parts.js";
import { table } from "../table.js";

export const title = () => "Moves";

export function render(doc) {
  return page("Moves", null,
    doc.is_frozen && h("ul", { class: "conditions" }, h("li", { class: "warn" }, state("warn", "Reassignments are frozen: no move begins until `tidelog reassign unfreeze`."))),
    h("p", { class: "choices" }, changes(doc)),
    figures([
      ["Under way", count(doc.under_way)],
      ["Queued", doc.knows_queue ? count(doc.queued) : "–"],
      ["Left to copy", bytes(doc.left)],
      ["Copied", `${bytes(doc.rate)}/s`],
    ]),
    findings(doc),
    table({
      caption: "Moves", data: doc.table, key: (row) => `${row.topic}-${row.partition}`, empty: "No partition moves now.",
      columns: [
        { title: "Topic", sort: "topic", default: "topic", class: "wide", cell: (row) => topicLink(row.topic) },
        { title: "Partition", sort: "partition", number: true, cell: (row) => partitionLink(row.topic, row.partition, String(row.partition)) },
        { title: "State", sort: "state", cell: (row) => step(row) },
        { title: "To brokers", cell: (row) => brokers(row.target) },
        { title: "Adds", level: 3, cell: (row) => brokers(row.adding) },
        { title: "Removes", level: 3, cell: (row) => brokers(row.removing) },
        { title: "Progress", sort: "done", cell: (row) => progress(row) },
        { title: "Rate", sort: "rate", number: true, level: 2, cell: (row) => (row.rate === null ? "–" : `${bytes(row.rate)}/s`) },
        { title: "Throttle", sort: "throttle", number: true, level: 3, cell: (row) => (row.throttle ?? row.limit ? `${bytes(row.throttle ?? row.limit)}/s` : "–") },
        { title: "Left", sort: "left_ms", number: true, cell: (row) => (row.is_never ? state("warn", "never at this rate") : duration(row.left_ms)) },
      ],
    }));
}

const KINDS = [["rebalance", "Balance racks, replicas, bytes and leaders"], ["drain", "Drain brokers, which stay"],
  ["decommission", "Take all replicas off brokers"], ["topic", "Move a topic to brokers"]];
const ids = (text) => text.split(/[\s,]+/).filter(Boolean).map(Number);
const RATE = { name: "throttle", label: "Throttle for each broker, such as 10 MiB (none, if empty)" };

function changes(doc) {
  return [
    !doc.under_way && changeButton({
      label: "Plan moves", action: "plan", title: "Plan moves", text: "The plan is shown before anything moves.",
      fields: [
        { name: "kind", label: "What for", options: KINDS, value: "rebalance" },
        { name: "brokers", label: "Brokers, such as 1, 2 (not for a balance)" },
        { name: "topic", label: "Topic (only to move a topic)" },
        RATE,
      ],
      body: ({ kind, brokers: text, topic, throttle }) => ({ kind, brokers: ids(text), topic, throttle }),
    }),
    doc.under_way > 0 && changeButton({
      label: "Throttle", action: "throttle", title: "Throttle of all moves", text: "0 removes the throttle.",
      fields: [{ ...RATE, label: "Rate for each broker, such as 10 MiB", required: true }], body: ({ throttle }) => ({ throttle }),
    }),
    doc.under_way + doc.queued > 0 && changeButton({ label: "Cancel all moves", action: "cancel", title: "Cancel all moves", body: () => ({}) }),
  ];
}

function step(row) {
  const text = row.step ?? row.state;
  return row.reason ? h("span", null, state("warn", text), h("small", null, ` ${row.reason}`)) : state("note", text);
}

function progress(row) {
  if (row.bytes === null) return "–";
  const share = row.bytes ? row.done / row.bytes : 1;
  return h("span", { class: "meter-cell" },
    h("meter", { min: 0, max: 1, value: String(share), "aria-label": `${Math.round(share * 100)} percent` }),
    h("span", null, ` ${Math.floor(share * 100)} % of ${bytes(row.bytes)}`));
}
