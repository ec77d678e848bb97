// One broker: its partitions in numbers, and its last 24 hours.

import { href } from "../address.js";
import { h } from "../dom.js";
import { count } from "../format.js";
import { history } from "../history.js";
import { crumbs, figures, missing, page, state } from "../parts.js";

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
    history(doc.history));
}
