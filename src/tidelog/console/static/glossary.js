// What Kafka's terms mean, for readers who do not know them all: a tooltip, and a list on the page.

import { h } from "./dom.js";

const TERMS = {
  ISR: "in-sync replicas: those that have all committed records, and from which leaders are elected",
  ELR: "eligible leader replicas: out of the ISR, and known to have all committed records",
  "High watermark": "the offset up to which all in-sync replicas have the records; consumers read up to it",
  "Log end": "the offset after the last record in a replica's log (LEO)",
  "Leader epoch": "a number that rises with each new leader of the partition",
  "Partition epoch": "a number that rises with each change of the partition's leader or ISR",
  "Controller epoch": "a number that rises with each new controller",
  "Broker epoch": "a number that each registration of a broker gets",
  "Preferred leader": "the first of the partition's replicas, which leads whenever it can",
  "min.insync.replicas": "how many replicas must be in sync before a write with acks=all is accepted",
  Lag: "how many records are not copied, or not read, yet",
};

/** Return a term that explains itself to the pointer. */
export const term = (name) => h("abbr", { title: TERMS[name] }, name);

/** Return a list of terms with their meanings, folded, for the keyboard and screen readers as well. */
export const glossary = (...names) =>
  h("details", { class: "glossary", key: "glossary" }, h("summary", null, "What the terms mean"),
    h("dl", null, names.map((name) => [h("dt", null, name), h("dd", null, TERMS[name])])));
