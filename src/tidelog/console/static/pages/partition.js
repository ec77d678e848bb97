// One partition: replicas that move along the log, and why the partition is as it is.

import { href } from "../address.js";
import { changeButton } from "../change.js";
import { chart } from "../chart.js";
import { h } from "../dom.js";
import { bytes, count, difference, duration, sum, words } from "../format.js";
import { glossary, term } from "../glossary.js";
import { age, brokers, crumbs, figures, groupLink, lag, missing, page, panel, partitionState, state, why } from "../parts.js";

export const title = (params) => `Partition ${params.get("topic")}-${params.get("partition")}`;

export function render(doc) {
  const name = `${doc.topic}-${doc.partition}`;
  if (doc.missing) return missing(name, doc.missing);
  return page(name, h("span", null, crumbs(h("a", { href: href("topics") }, "Topics"),
      h("a", { href: href("topic", { name: doc.topic }) }, doc.topic), `partition ${doc.partition}`)),
    figures([
      ["State", partitionState(doc.state)],
      ["Leader", doc.leader === null ? "none" : `broker ${doc.leader}`, doc.leader === null ? "bad" : null],
      [term("Preferred leader"), doc.preferred === null ? "–" : `broker ${doc.preferred}`],
      [term("Leader epoch"), count(doc.leader_epoch)],
      [term("Partition epoch"), count(doc.partition_epoch)],
      [term("ISR"), brokers(doc.isr)],
      [term("ELR"), doc.elr === null ? "–" : brokers(doc.elr)],
      [term("min.insync.replicas"), count(doc.min_isr)],
      [term("High watermark"), count(doc.high_watermark)],
    ]),
    doc.conditions.length > 0 && h("ul", { class: "conditions", "aria-label": "What holds now" }, doc.conditions.map((each) =>
      h("li", { class: each.level }, state(each.level, each.text)))),
    h("p", { class: "choices" }, h("a", { href: href("records", { topic: doc.topic, partition: doc.partition }) }, "Read records"), changes(doc)),
    panel("Replicas", lanes(doc), replicas(doc)),
    h("div", { class: "columns" },
      panel("Offsets over time", chart({ label: "log ends and high watermark", series: doc.history, format: count })),
      panel("Groups", groups(doc))),
    panel("Why", doc.why.length
      ? h("ol", { class: "why" }, doc.why.map((each) => why(each, doc.time_ms)))
      : h("p", { class: "nothing" }, "No event in memory is about this partition.")),
    glossary("ISR", "ELR", "High watermark", "Log end", "Lag", "Leader epoch", "Partition epoch", "Preferred leader", "min.insync.replicas"));
}

function changes(doc) {
  const place = { topic: doc.topic, partition: doc.partition };
  const name = `${doc.topic}-${doc.partition}`;
  return [
    !doc.is_preferred && changeButton({ label: "Elect the preferred leader", action: "elect", title: `Leader of ${name}`, body: () => place }),
    changeButton({
      label: "Move", action: "move", title: `Move ${name}`, text: "The first broker becomes the preferred leader.",
      fields: [{ name: "brokers", label: "Brokers, such as 1, 2, 3", required: true, value: doc.replicas.map((each) => each.broker).join(", ") }],
      body: ({ brokers }) => ({ ...place, brokers: brokers.split(/[\s,]+/).filter(Boolean).map(Number) }),
    }),
    changeButton({ label: "Cancel the move", action: "move", title: `Cancel the move of ${name}`, body: () => ({ ...place, brokers: null }) }),
    changeButton({
      label: "Write a record", action: "produce", title: `Write a record to ${name}`,
      fields: [{ name: "key", label: "Key (none, if empty)" }, { name: "value", label: "Value", rows: 5 }],
      body: ({ key, value }) => ({ ...place, key, value }),
    }),
  ];
}

// Each replica's log end on one scale with the high watermark: what is behind is seen at once.
function lanes(doc) {
  const ends = doc.replicas.map((each) => each.log_end).filter((end) => end !== null);
  if (!ends.length) return null;
  const known = [...ends, doc.high_watermark].filter((end) => end !== null).sort(difference);
  const [low, top] = [known[0], known.at(-1)];
  const below = Math.max(10, difference(top, low));
  const base = difference(low, 0) > below ? sum(low, -below) : 0;
  const share = (offset) => `${(100 * difference(offset, base)) / Math.max(1, difference(top, base))}%`;
  return h("div", { class: "lanes", role: "img", "aria-label": `Log ends from ${count(base)} to ${count(top)}: ` +
      doc.replicas.map((each) => `broker ${each.broker} ${each.log_end === null ? "unknown" : count(each.log_end)}`).join(", ") },
    doc.replicas.map((each) => h("div", { class: "lane", key: `lane-${each.broker}` },
      h("span", { class: "lane-name" }, `broker ${each.broker}`),
      h("span", { class: "track" },
        h("span", { class: `log ${each.is_leader ? "leader" : each.in_isr ? "in" : "out"}`, style: { width: each.log_end === null ? "0%" : share(each.log_end) } }),
        doc.high_watermark !== null && h("span", { class: "hw", style: { left: share(doc.high_watermark) } })),
      h("span", { class: "lane-end" }, count(each.log_end)))),
    h("p", { class: "hint" }, "The thin line is the high watermark: records up to it are committed."));
}

function replicas(doc) {
  const columns = ["Broker", "Role", "In ISR", "Out because", "Log start", "Log end", "Lag", "Behind for", "Log directory", "Size"];
  const numbers = ["Broker", "Log start", "Log end", "Lag", "Behind for", "Size"];
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Replicas, table" }, h("table", null,
    h("caption", { class: "unseen" }, "Replicas"),
    h("thead", null, h("tr", null, columns.map((text) => h("th", { scope: "col", class: numbers.includes(text) ? "number" : null }, text)))),
    h("tbody", null, doc.replicas.map((each) => h("tr", { key: each.broker },
      h("td", { class: "number" }, String(each.broker)),
      h("td", null, role(each)),
      h("td", null, each.in_isr ? state("good", "yes") : state("warn", each.is_eligible ? "no, eligible" : "no")),
      h("td", null, each.out_cause ? [words(each.out_cause), each.out_since_ms ? [", ", age(each.out_since_ms, doc.time_ms)] : null] : "–"),
      h("td", { class: "number" }, count(each.log_start)),
      h("td", { class: "number" }, count(each.log_end)),
      h("td", { class: "number" }, lag(each.lag)),
      h("td", { class: "number" }, duration(each.lag_ms)),
      h("td", { class: "mono" }, each.directory ?? "–", each.moving_to_directory && h("small", null, ` moves to ${each.moving_to_directory}`)),
      h("td", { class: "number" }, bytes(each.size)))))));
}

function role(each) {
  if (!each.is_registered) return state("bad", "not registered");
  if (each.is_offline) return state("bad", "offline");
  return each.is_leader ? "leader" : "follower";
}

function groups(doc) {
  if (!doc.groups.length) return h("p", { class: "nothing" }, "No group has committed an offset of this partition.");
  return h("ul", { class: "readers tall" }, doc.groups.map((each) => h("li", { key: each.group },
    groupLink(each.group), ` at ${count(each.committed)}, lag `, h("b", null, lag(each.lag)),
    each.member && h("small", { class: "name" }, ` read by ${each.member}`))));
}
