// One broker: its partitions in numbers, and its last 24 hours.

import { href } from "../address.js";
import { h } from "../dom.js";
import { count, words } from "../format.js";
import { history } from "../history.js";
import { age, crumbs, figures, missing, page, panel, partitionLink, state } from "../parts.js";

export const title = (params) => `Broker ${params.get("id")}`;

export function render(doc) {
  const name = `Broker ${doc.broker}`;
  if (doc.missing) return missing(name, doc.missing);
  return page(name, h("span", null, crumbs(h("a", { href: "/" }, "Cluster"), name)),
    h("p", { class: "choices" }, h("a", { href: href("configuration", { of: "broker", name: doc.broker }) }, "Configuration")),
    figures([
      ["State", doc.is_registered ? state("good", "registered") : state("bad", "not registered")],
      ["Role", doc.is_controller ? "controller" : "broker"],
      ["Address", doc.address ?? "–"],
      ["Leads", count(doc.leaders)],
      ["Replicas", count(doc.replicas)],
      ["Out of sync", count(doc.out_of_sync), doc.out_of_sync ? "warn" : null],
    ]),
    doc.behind.length > 0 && panel("Out of the ISR", h("ul", { class: "readers" }, doc.behind.map((each) =>
      h("li", null, partitionLink(each.topic, each.partition), each.leader === null ? " without a leader" : ` led by ${each.leader}`,
        each.cause && `, ${words(each.cause)}`, each.since_ms !== null && [" ", age(each.since_ms, doc.time_ms)])),
      doc.out_of_sync > doc.behind.length && h("li", null, `and ${count(doc.out_of_sync - doc.behind.length)} more`))),
    history(doc.history));
}
