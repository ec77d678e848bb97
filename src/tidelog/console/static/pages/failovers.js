// The last failovers: where the time went, phase by phase, and why they came.

import { h } from "../dom.js";
import { count, duration, list, words } from "../format.js";
import { page, panel, partitionLink, time, why } from "../parts.js";

export const title = () => "Failovers";

export function render(doc) {
  return page("Failovers", `${count(doc.total)} in the events in memory`,
    doc.failovers.length ? doc.failovers.map((each) => failover(each, doc.time_ms))
      : h("p", { class: "nothing" }, "No leader has died or shut down in the events in memory."));
}

function failover(each, now) {
  const what = each.cause === "shutdown" ? "Shutdown of" : "Death of";
  return h("article", { class: "failover", key: `${each.time_ms}-${each.controller_epoch}` },
    h("h2", null, `${what} broker${each.brokers.length === 1 ? "" : "s"} ${list(each.brokers)}`, " ", time(each.time_ms, now)),
    h("p", null, `${count(each.partitions)} partitions led again in ${duration(each.whole_ms)}${each.detection_ms === null ? ", counted from when the controller noticed" : ""}`,
      each.unanswered > 0 && `; ${count(each.unanswered)} without a response of their leader`),
    h("div", { class: "phases", role: "img", "aria-label": each.phases.map((phase) => `${phase.name} ${phase.ms} ms`).join(", ") },
      each.phases.map((phase, index) => h("span", { class: `phase series-${index % 6}`, style: { "flex-grow": String(Math.max(phase.ms, each.whole_ms / 200, 0.2)) } }))),
    h("ul", { class: "legend" }, each.phases.map((phase, index) => h("li", { class: `series-${index % 6}` }, phase.name, " ", h("b", null, duration(phase.ms))))),
    each.detection_ms === null && each.cause !== "shutdown" && h("p", null,
      "Nothing shows when it died. The controller noticed within metadata.session.timeout.ms, or at once if the operating system closed its connections."),
    each.leaders.length > 0 && h("p", null, "The slowest new leader after its role: ",
      each.leaders.map((phase, index) => [index ? ", " : null, words(phase.name), " ", h("b", null, duration(phase.ms))])),
    each.why.length > 0 && h("details", { class: "causes" }, h("summary", null, "Why"), h("ol", { class: "why" }, each.why.map((cause) => why(cause, now)))),
    each.sample.length > 0 && h("details", null, h("summary", null, "Partitions"),
      h("ul", { class: "readers" }, each.sample.map((row) => h("li", null, partitionLink(row.topic, row.partition), ` led by ${row.leader} after ${duration(row.led_ms)}`)),
        each.more > 0 && h("li", null, `and ${count(each.more)} more`))));
}
