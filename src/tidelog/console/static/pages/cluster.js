// The cluster: its health with next steps, and its brokers.

import { href } from "../address.js";
import { h } from "../dom.js";
import { bytes, count, rate } from "../format.js";
import { glossary, term } from "../glossary.js";
import { history } from "../history.js";
import { age, figures, findings, HEALTH, missing, page, state } from "../parts.js";
import { table } from "../table.js";

export const title = () => "Cluster";

const MEANINGS = {
  unavailable: "Clients cannot write, or neither read nor write, the partitions that are named below with the next step.",
  unreachable: "No broker responds to this console, so the page shows the last reading. The next step is below.",
  degraded: "Clients are served, but a further failure could stop that. What to do is below.",
};

export function render(doc) {
  if (doc.missing) return missing("Cluster", doc.missing);
  const counts = doc.counts;
  return page("Cluster", doc.cluster_id && `id ${doc.cluster_id}`,
    h("p", { class: `health ${HEALTH[doc.level]}` }, state(HEALTH[doc.level], doc.level),
      MEANINGS[doc.level] && h("small", null, ` ${MEANINGS[doc.level]}`)),
    figures([
      ["Brokers", `${counts.brokers - counts.brokers_down} of ${counts.brokers}`, counts.brokers_down ? "warn" : null],
      ["Controller", doc.controller === null ? "none" : `broker ${doc.controller}`, doc.controller === null ? "bad" : null],
      [term("Controller epoch"), doc.controller_epoch === null ? "–" : count(doc.controller_epoch)],
      ["Topics", h("a", { href: href("topics") }, count(counts.topics))],
      ["Partitions", count(counts.partitions)],
      ["Under-replicated", count(counts.under_replicated), counts.under_replicated ? "warn" : null],
      ["No leader", count(counts.leaderless), counts.leaderless ? "bad" : null],
      ["Below min ISR", count(counts.below_min_isr), counts.below_min_isr ? "bad" : null],
      ["Groups", h("a", { href: href("groups") }, count(counts.groups))],
      ["Records in", rate(doc.rate)],
    ]),
    findings(doc),
    table({
      caption: "Brokers", data: doc.table, key: (row) => row.broker,
      columns: [
        { title: "Broker", sort: "broker", default: "broker", number: true, cell: (row) => h("a", { class: "row", href: href("broker", { id: row.broker }) }, String(row.broker)) },
        { title: "State", sort: "is_registered", cell: (row) => session(row, doc.time_ms) },
        { title: "Role", sort: "is_controller", cell: (row) => (row.is_controller ? "controller" : "broker") },
        { title: "Address", sort: "address", level: 2, class: "mono", cell: (row) => row.address ?? "–" },
        { title: "Rack", sort: "rack", level: 3, cell: (row) => row.rack ?? "–" },
        { title: term("Broker epoch"), sort: "broker_epoch", number: true, level: 2, cell: (row) => (row.broker_epoch === null ? "–" : String(row.broker_epoch)) },
        { title: "Session since", sort: "session_since_ms", level: 3, cell: (row) => age(row.session_since_ms, doc.time_ms) },
        { title: "Leads", sort: "leaders", number: true, cell: (row) => count(row.leaders) },
        { title: "Replicas", sort: "replicas", number: true, cell: (row) => count(row.replicas) },
        { title: "Out of sync", sort: "out_of_sync", number: true, cell: (row) => (row.out_of_sync ? state("warn", count(row.out_of_sync)) : "0") },
        { title: "Size", sort: "size", number: true, level: 2, cell: (row) => bytes(row.size) },
      ],
    }),
    history(doc.history),
    glossary("ISR", "Controller epoch", "Broker epoch", "min.insync.replicas"),
  );
}

function session(row, now) {
  if (row.is_registered) return state("good", "registered");
  if (row.session_ended_by === "shutdown") return state("note", ["shut down ", age(row.session_ended_ms, now)]);
  if (row.session_ended_by) return state("bad", ["session lost ", age(row.session_ended_ms, now)]);
  return state("bad", "not registered");
}
