// The configuration of a broker or a topic: value, source, default, meaning, and what a change does.

import { setParams } from "../address.js";
import { changeButton } from "../change.js";
import { h } from "../dom.js";
import { get } from "../live.js";
import { page, state } from "../parts.js";
import { table } from "../table.js";

export const title = (params) => `Configuration ${params.get("name") ?? ""}`;

export async function load(params, onDocument, onTrouble) {
  try {
    const query = new URLSearchParams(params);
    if (!query.get("name") && query.get("of") !== "topic") {
      const cluster = await get("/api/view/cluster");
      query.set("of", "broker");
      const rows = cluster.table?.rows ?? [];
      query.set("name", String((rows.find((row) => row.is_registered) ?? rows[0])?.broker ?? ""));
    }
    onDocument(await get(`/api/lookup/configuration?${query}`));
  } catch (error) {
    onTrouble(error.message);
  }
}

export function render(doc, params) {
  const onlyChanged = params.get("changed") === "1";
  return page("Configuration", doc.of === "topic" ? `topic ${doc.name}` : `broker ${doc.name}`,
    h("div", { class: "choices", role: "group", "aria-label": "Whose configuration" },
      doc.brokers.map((broker) => h("button", { type: "button", class: "quiet", key: `b${broker}`, "aria-pressed": String(doc.of === "broker" && doc.name === String(broker)),
        on: { click: () => setParams({ of: "broker", name: String(broker) }) } }, `broker ${broker}`)),
      h("button", { type: "button", class: "quiet", key: "changed", "aria-pressed": String(onlyChanged), on: { click: () => setParams({ changed: onlyChanged ? "" : "1" }) } }, "Only what differs from the default"),
      changeButton({
        label: "Change a key", action: "configure", title: "Change a key", text: "Without a value, the setting is removed. The brokers check the change first.",
        fields: [{ name: "key", label: "Key", required: true }, { name: "value", label: "Value" }],
        body: ({ key, value }) => ({ of: doc.of, name: doc.name, key, value: value === "" ? null : value }),
      })),
    table({
      caption: "Keys", data: doc.table, key: (row) => row.name,
      columns: [
        { title: "Key", sort: "name", default: "name", class: "mono wide", cell: (row) => row.name },
        { title: "Value", sort: "value", class: "mono wide", cell: (row) => (row.is_sensitive ? h("i", null, "hidden") : row.value === null || row.value === "" ? h("i", null, "empty") : row.value) },
        { title: "Source", sort: "source", cell: (row) => (row.is_default ? "default" : state("note", row.source)) },
        { title: "Default", level: 2, class: "mono wide", cell: (row) => row.default ?? "–" },
        { title: "Meaning, and what a change does", level: 2, class: "long", cell: (row) => [row.meaning, " ", h("small", null, row.effect)] },
      ],
    }));
}
