// Records of a partition: from an offset, a time, the start or the end; filtered by key and words.

import { setParams, current } from "../address.js";
import { h } from "../dom.js";
import { bytes, count } from "../format.js";
import { get } from "../live.js";
import { missing, page, state, time } from "../parts.js";

export const title = (params) => `Records ${params.get("topic") ?? ""}`;

export function load(params, onDocument, onTrouble) {
  if (!params.get("topic")) {
    onDocument({ topic: "", records: null });
    return;
  }
  get(`/api/lookup/records?${params}`).then(onDocument, (error) => onTrouble(error.message));
}

export function render(doc, params) {
  const notFound = doc.missing && h("p", { class: "nothing" }, doc.missing);
  return page("Records", doc.records && `offsets ${count(doc.low)} to ${count(doc.high)}`,
    form(params), notFound ?? (doc.records ? found(doc) : h("p", { class: "nothing" }, "Name a topic to read its records.")));
}

function form(params) {
  const field = (name, label, more = {}) => h("label", null, h("span", null, label),
    h("input", { name, value: params.get(name) ?? "", autocomplete: "off", spellcheck: "false", ...more }));
  return h("form", { class: "search", role: "search", "aria-label": "Records", on: {
    submit: (event) => {
      event.preventDefault();
      setParams(Object.fromEntries(new FormData(event.target)));
    } } },
    field("topic", "Topic", { required: true }),
    field("partition", "Partition", { inputmode: "numeric", placeholder: "0", size: 6 }),
    field("from", "From", { placeholder: "latest, earliest, 120, 2026-01-31T12:00" }),
    field("key", "Key is"),
    field("q", "Contains"),
    field("header", "Header", { placeholder: "trace-id, or trace-id=7" }),
    field("json", "JSON value", { placeholder: '$.origin = "JFK"' }),
    h("button", { class: "primary" }, "Read"));
}

function found(doc) {
  const next = () => setParams({ from: String(doc.next) });
  return h("section", { class: "table", "aria-label": "Records found" },
    doc.records.length
      ? h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Records, table" }, h("table", null,
          h("caption", { class: "unseen" }, "Records"),
          h("thead", null, h("tr", null, ["Offset", "Time", "Key", "Value", "Headers"].map((text, index) => h("th", { scope: "col", class: index ? null : "number" }, text)))),
          h("tbody", null, doc.records.map((record) => h("tr", { key: record.offset, class: "record" },
            h("td", { class: "number" }, count(record.offset)),
            h("td", null, time(record.time_ms)),
            h("td", { class: "long" }, shown(record.key)),
            h("td", { class: "long" }, shown(record.value)),
            h("td", { class: "long" }, record.headers.map((header) => h("div", null, h("b", null, header.key), " ", shown(header.value)))))))))
      : h("p", { class: "nothing" }, "No record between these offsets matches."),
    h("p", { class: "count", role: "status" }, `${count(doc.records.length)} records; the search ended at offset ${count(doc.next)}`,
      !doc.is_ended && h("button", { type: "button", class: "quiet", on: { click: next } }, "Read on")));
}

export function shown(part) {
  if (part.form === "null") return h("i", null, "null");
  if (part.form === "empty") return h("i", null, "empty");
  return h("div", { class: "bytes" }, h("pre", { class: part.form }, part.text),
    h("small", null, part.form, part.schema_id && `, schema ${part.schema_id}`, part.is_cut && `, the first part of ${bytes(part.bytes)}`),
    part.note && h("small", { class: "note" }, `Not decoded: ${part.note}.`));
}
