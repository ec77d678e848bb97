// Pieces that several pages are made of.

import { href } from "./address.js";
import { h } from "./dom.js";
import { brokers, figures, page, panel, state } from "./elements.js";
import { ago, bytes, clock, count, iso, NONE, words } from "./format.js";

const LEVELS = { "in sync": "good", "out of sync": "warn", "below min ISR": "bad", "no leader": "bad" };
export const partitionState = (text) => state(LEVELS[text] ?? "note", text);

export const topicLink = (name) => h("a", { class: "row name", href: href("topic", { name }) }, name);
export const groupLink = (name) => h("a", { class: "row name", href: href("group", { name }) }, name);
export const partitionLink = (topic, partition, text) =>
  h("a", { class: "row", href: href("partition", { topic, partition }) }, text ?? `${topic}-${partition}`);

export const time = (ms, now) =>
  ms === null || ms === undefined ? NONE : h("time", { datetime: iso(ms), title: iso(ms) }, clock(ms, now));
export const age = (ms, now) =>
  ms === null || ms === undefined ? NONE : h("time", { datetime: iso(ms), title: iso(ms) }, ago(ms, now));

export const HEALTH = { healthy: "good", notice: "note", degraded: "warn", unavailable: "bad", unreachable: "bad" };

/** Return the findings of a page, each with its next step; nothing if there are none. */
export const findings = (doc) => doc.findings.length > 0 && panel("What to look at",
  h("ul", { class: "findings" }, doc.findings.map((finding) =>
    h("li", { class: HEALTH[finding.level] ?? "note" },
      h("p", null, state(HEALTH[finding.level] ?? "note", finding.level), " ", finding.message),
      h("p", { class: "next" }, "Next: ", h("code", null, finding.next))))));

export const missing = (title, text) =>
  page(title, null, h("p", { class: "nothing" }, text), h("p", null, h("a", { href: "/" }, "To the cluster")));

export const crumbs = (...links) =>
  h("p", { class: "crumbs" }, links.map((link, index) => [index ? " / " : null, link]));

/** Return the chain of causes of an event as nested lists. */
export function why(entry, now) {
  return h("li", { class: "cause" },
    h("div", { class: "event" },
      time(entry.time_ms, now),
      h("span", { class: "kind" }, words(entry.kind)),
      h("span", { class: "text" }, entry.text)),
    entry.because.length
      ? h("div", { class: "because" }, h("p", null, "because"), h("ol", null, entry.because.map((each) => why(each, now))))
      : entry.end && h("p", { class: "end" }, entry.end));
}

export const lag = (value) => (value === null || value === undefined ? NONE : value === 0 ? "0" : count(value));
export { brokers, bytes, count, figures, page, panel, state };
