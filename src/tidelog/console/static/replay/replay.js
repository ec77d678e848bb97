// The page of a simulated run: steps that can be filtered and gone through, and the cluster at each.

import { h, morph } from "../dom.js";
import { figures, panel, state } from "../elements.js";
import { count, words } from "../format.js";
import { setUpTheme } from "../theme.js";

const [TIME, KIND, SUBJECT, BROKERS, TEXT, CHANGES, HOSTS] = [0, 1, 2, 3, 4, 5, 6];
const BEFORE = 8;
const AFTER = 16;
const EVERY = 250;
const LANE = 18;
const LEVELS = { up: "good", paused: "warn", down: "bad" };
const LEGEND = [["up", "up"], ["paused", "paused"], ["down", "down"], ["fault", "fault"], ["state", "new leader or replicas"], ["violation", "violation"]];
const seconds = (us) => `${(us / 1e6).toFixed(6)} s`;

/** A run with a position, filters, and the state of the cluster at the position. */
class Run {
  constructor(data) {
    Object.assign(this, data);
    this.at = 0;
    this.filter = { broker: "", subject: "", words: "", kinds: new Set(this.kinds) };
    this.states = this.checkpoints();
    this.spans = this.brokerSpans();
    this.choose();
  }

  kindOf(step) { return this.kinds[step[KIND]]; }
  subjectOf(step) { return step[SUBJECT] < 0 ? "" : this.subjects[step[SUBJECT]]; }

  // The whole state at every 250th step, so that a jump applies few changes.
  checkpoints() {
    const found = [];
    const now = new Map();
    this.steps.forEach((step, index) => {
      if (index % EVERY === 0) found.push(new Map(now));
      apply(now, step[CHANGES]);
    });
    return found;
  }

  stateAt(index) {
    const first = Math.floor(index / EVERY);
    const now = new Map(this.states[first]);
    for (let each = first * EVERY; each <= index; each += 1) apply(now, this.steps[each][CHANGES]);
    return now;
  }

  brokerSpans() {
    const key = new Map(this.brokers.map((id) => [this.keys.findIndex(([kind, , of]) => kind === "broker" && of === id), id]));
    const spans = [];
    const open = new Map();
    const end = this.steps.at(-1)?.[TIME] ?? 0;
    for (const step of this.steps) {
      for (let place = 0; place < step[CHANGES].length; place += 2) {
        const id = key.get(step[CHANGES][place]);
        if (id === undefined) continue;
        if (open.has(id)) spans.push({ ...open.get(id), until: step[TIME] });
        open.set(id, { id, from: step[TIME], status: step[CHANGES][place + 1] });
      }
    }
    for (const span of open.values()) spans.push({ ...span, until: end });
    return spans;
  }

  choose() {
    const { broker, subject, words: text, kinds } = this.filter;
    const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.chosen = [];
    this.steps.forEach((step, index) => {
      if (!kinds.has(this.kindOf(step))) return;
      if (broker && !step[BROKERS].includes(Number(broker))) return;
      if (subject && this.subjectOf(step) !== subject) return;
      const whole = `${this.subjectOf(step)} ${step[TEXT]}`.toLowerCase();
      if (wanted.every((word) => whole.includes(word))) this.chosen.push(index);
    });
  }

  /** The place among the chosen steps of the last one that is not after a step. */
  place(index = this.at) {
    let [low, high] = [0, this.chosen.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.chosen[middle] <= index) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  step(by) {
    const place = this.place();
    // From a step that the filter hides, one step back is the last chosen one before it.
    const isHidden = this.chosen[place] !== this.at;
    const next = isHidden && by < 0 ? place + by + 1 : place + by;
    if (this.chosen.length) this.at = this.chosen[Math.max(0, Math.min(this.chosen.length - 1, next))];
  }

  seek(kind, by) {
    for (let index = this.at + by; index >= 0 && index < this.steps.length; index += by) {
      if (this.kindOf(this.steps[index]) === kind) {
        this.at = index;
        return;
      }
    }
  }

  goToTime(us) {
    let [low, high] = [0, this.steps.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.steps[middle][TIME] <= us) low = middle + 1;
      else high = middle;
    }
    this.at = Math.max(0, low - 1);
  }
}

function apply(now, changes) {
  for (let place = 0; place < changes.length; place += 2) {
    if (changes[place + 1] === null) now.delete(changes[place]);
    else now.set(changes[place], changes[place + 1]);
  }
}

// -- drawing ----------------------------------------------------------------------------------

function overview(run, move) {
  const width = 1000;
  const row = 20;
  const end = Math.max(1, run.steps.at(-1)?.[TIME] ?? 1);
  const x = (us) => ((us / end) * width).toFixed(2);
  const height = row * run.brokers.length;
  const marks = run.steps.filter((step) => ["fault", "state", "violation"].includes(run.kindOf(step)));
  return h("div", { class: "overview" },
    h("div", { class: "names" }, run.brokers.map((id) => h("span", null, `broker ${id}`))),
    h("svg", {
      viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", style: { height: `${1.4 * run.brokers.length}rem` },
      "aria-label": `The whole run of ${seconds(end)}: brokers up, paused and down, with faults, changes of leaders and the violation`,
      on: { click: (event) => {
        const box = event.currentTarget.getBoundingClientRect();
        run.goToTime(((event.clientX - box.left) / box.width) * end);
        move(run);
      } },
    },
    run.spans.map((span) => h("rect", { class: span.status, x: x(span.from), width: Math.max(0.5, x(span.until) - x(span.from)), y: run.brokers.indexOf(span.id) * row + 4, height: row - 8 })),
    marks.map((step) => h("line", { class: `mark ${run.kindOf(step)}`, x1: x(step[TIME]), x2: x(step[TIME]), y1: 0, y2: height })),
    h("line", { class: "cursor", x1: x(run.steps[run.at]?.[TIME] ?? 0), x2: x(run.steps[run.at]?.[TIME] ?? 0), y1: 0, y2: height })));
}

function lanes(run, step) {
  const columns = [...run.brokers, "clients"];
  const middle = (place) => place * LANE + LANE / 2;
  const of = (host) => {
    const id = run.brokers.findIndex((each) => host === `broker${each}`);
    return middle(id < 0 ? columns.length - 1 : id);
  };
  const parts = columns.map((id, place) => {
    const span = run.spans.find((each) => each.id === id && each.from <= step[TIME] && step[TIME] < each.until);
    const status = span?.status ?? "up";
    return h("line", { class: `lane is-${status}`, x1: middle(place), x2: middle(place), y1: 0, y2: 30 });
  });
  if (step[HOSTS]) {
    const [from, to] = step[HOSTS].map((host) => of(run.hosts[host]));
    const back = from < to ? -5 : 5;
    parts.push(h("line", { class: "arrow", x1: from, x2: to, y1: 15, y2: 15 }),
      h("polygon", { class: "head", points: `${to},15 ${to + back},11 ${to + back},19` }));
  } else {
    for (const id of step[BROKERS]) {
      if (run.brokers.includes(id)) parts.push(h("circle", { class: `dot ${run.kindOf(step)}`, cx: middle(run.brokers.indexOf(id)), cy: 15, r: 4 }));
    }
  }
  return h("svg", { viewBox: `0 0 ${columns.length * LANE} 30`, width: columns.length * LANE, preserveAspectRatio: "none", "aria-hidden": "true" }, parts);
}

function stepList(run, move) {
  const place = run.place();
  const first = Math.max(0, place - BEFORE);
  const rows = run.chosen.slice(first, Math.max(place, 0) + AFTER);
  if (!rows.length) return h("p", { class: "nothing" }, "No step has what the filters want.");
  return h("ol", { class: "steps", "aria-label": "Steps" }, rows.map((index) => {
    const step = run.steps[index];
    return h("li", { key: String(index), "aria-current": index === run.at ? "step" : null },
      lanes(run, step),
      h("button", { type: "button", on: { click: () => { run.at = index; move(run); } } }, seconds(step[TIME])),
      h("p", null, h("span", { class: "kind" }, `${words(run.kindOf(step))} `),
        step[SUBJECT] >= 0 && h("span", { class: "subject" }, `${run.subjectOf(step)}: `), step[TEXT]));
  }));
}

function cluster(run, now) {
  const before = run.at > 0 ? run.stateAt(run.at - 1) : new Map();
  const partitions = new Map();
  run.keys.forEach(([kind, name, broker], key) => {
    if (kind === "broker" || !now.has(key)) return;
    const row = partitions.get(name) ?? { replicas: new Map() };
    const isChanged = JSON.stringify(before.get(key)) !== JSON.stringify(now.get(key));
    if (kind === "partition") Object.assign(row, { state: now.get(key), isChanged });
    else row.replicas.set(broker, { value: now.get(key), isChanged });
    partitions.set(name, row);
  });
  if (!partitions.size) return h("p", { class: "nothing" }, "No partition exists yet.");
  const names = [...partitions.keys()].filter((name) => !run.filter.subject || run.filter.subject === name).sort();
  const cell = (row, id) => {
    const replica = row.replicas.get(id);
    if (!replica) return h("td", { class: "number" }, "–");
    const [end, mark] = replica.value;
    return h("td", { class: `number${replica.isChanged ? " changed" : ""}` }, `${count(end)} / ${mark < 0 ? "–" : count(mark)}`);
  };
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Replicas at this step" },
    h("table", null,
      h("thead", null, h("tr", null, ["Partition", "Leader", "Epoch", "ISR"].map((each) => h("th", { scope: "col" }, each)),
        run.brokers.map((id) => h("th", { scope: "col", title: "log end offset / high watermark" }, `${id}: LEO / HW`)))),
      h("tbody", null, names.map((name) => {
        const row = partitions.get(name);
        const [leader, epoch, isr] = row.state ?? [null, null, []];
        const changed = row.isChanged ? "changed" : null;
        return h("tr", { key: name }, h("th", { scope: "row" }, name),
          h("td", { class: changed }, leader === null ? "–" : leader < 0 ? state("bad", "none") : String(leader)),
          h("td", { class: changed }, count(epoch)), h("td", { class: changed }, isr.length ? isr.join(", ") : "–"),
          run.brokers.map((id) => cell(row, id)));
      }))));
}

function steering(run, move) {
  const button = (label, title, act) => h("button", { type: "button", title, on: { click: () => { act(); move(run); } } }, label);
  return h("div", { class: "steering", role: "group", "aria-label": "Steps of the run" },
    button("First", "Home", () => run.step(-Infinity)),
    button("Back", "Left arrow", () => run.step(-1)),
    button("Forward", "Right arrow", () => run.step(1)),
    button("Last", "End", () => run.step(Infinity)),
    button("Fault before", "F", () => run.seek("fault", -1)),
    button("Next fault", "f", () => run.seek("fault", 1)),
    run.kinds.includes("violation") && button("Violation", "v", () => run.goToTime(Infinity)),
    slider(run, move));
}

function slider(run, move) {
  const field = h("input", { type: "range", min: 0, max: Math.max(0, run.steps.length - 1), step: 1, "aria-label": "Step",
    on: { input: (event) => { run.at = Number(event.target.value); move(run); } } });
  field.value = String(run.at);
  return field;
}

function filters(run, move) {
  const change = (name) => (event) => {
    run.filter[name] = event.target.value;
    run.choose();
    move(run);
  };
  const choice = (name, label, options) => h("label", null, label,
    h("select", { on: { change: change(name) } }, h("option", { value: "" }, "all"), options.map((each) => h("option", { value: String(each) }, String(each)))));
  return h("details", { class: "filter-box" }, h("summary", null, "Filters"),
    h("div", { class: "filters" },
      choice("broker", "Broker", run.brokers), choice("subject", "Partition or group", [...run.subjects].sort()),
      h("label", null, "Words", h("input", { class: "words", on: { input: change("words") } })),
      h("button", { type: "button", class: "quiet", on: { click: () => setKinds(run, run.kinds, move) } }, "All kinds"),
      h("button", { type: "button", class: "quiet", on: { click: () => setKinds(run, run.kinds.filter((each) => each !== "message" && each !== "operation"), move) } }, "Without messages and operations")),
    h("fieldset", { class: "kinds" }, h("legend", { class: "unseen" }, "Kinds"), run.kinds.map((kind) => {
      const box = h("input", { type: "checkbox", "data-kind": kind, on: { change: (event) => {
        if (event.target.checked) run.filter.kinds.add(kind);
        else run.filter.kinds.delete(kind);
        run.choose();
        move(run);
      } } });
      box.checked = true;
      return h("label", null, box, words(kind));
    })));
}

function setKinds(run, kinds, move) {
  run.filter.kinds = new Set(kinds);
  for (const box of run.place_.querySelectorAll("[data-kind]")) box.checked = run.filter.kinds.has(box.dataset.kind);
  run.choose();
  move(run);
}

function drawn(run, move) {
  const step = run.steps[run.at];
  const now = step ? run.stateAt(run.at) : new Map();
  const place = run.place();
  const parts = [["seed", run.seed], ["profile", run.profile], ["mutant", run.mutant], ["only", run.only]];
  const title = parts.filter(([, value]) => value !== "").map(([name, value]) => `${name} ${value}`).join(", ");
  return h("section", { class: "run", "aria-label": title },
    h("h2", null, title),
    run.violation ? h("p", { class: "violated" }, state("bad", "violation"), ` ${run.violation.split("\n")[0]}`) : h("p", null, state("good", "no violation")),
    figures([["Events", count(run.events)], ["Simulated", seconds(run.simulated_us)], ["Steps", count(run.steps.length)],
      ...["leader elections", "crashes", "truncations", "ISR shrinks"].filter((name) => name in run.counters).map((name) => [words(name), count(run.counters[name])])]),
    run.left_out > 0 && h("p", { class: "nothing" }, `${count(run.left_out)} of the earliest messages and records have no step, so that this file stays small.`),
    overview(run, move),
    h("p", { class: "lanes-head" }, LEGEND.map(([name, text]) => h("span", { class: `key ${name}` }, text))),
    steering(run, move),
    filters(run, move),
    h("p", { class: "now", role: "status" }, step ? h("b", null, `Step ${count(place + 1)} of ${count(run.chosen.length)}, ${seconds(step[TIME])}: `) : null,
      step ? `${run.subjectOf(step) ? `${run.subjectOf(step)}: ` : ""}${step[TEXT]}` : "The run has no step."),
    h("p", { class: "lanes-head" }, run.brokers.map((id) => {
      const status = now.get(run.keys.findIndex(([kind, , broker]) => kind === "broker" && broker === id)) ?? "down";
      return state(LEVELS[status], `broker ${id} ${status}`);
    })),
    panel("Cluster at this step", cluster(run, now)),
    panel("Steps", h("p", { class: "lanes-head" }, `Lanes from the left: ${run.brokers.map((id) => `broker ${id}`).join(", ")}, clients`), stepList(run, move)),
    h("p", { class: "nothing" }, "Repeat it: ", h("code", null, run.command)));
}

// -- the page ---------------------------------------------------------------------------------

const runs = JSON.parse(document.getElementById("data").textContent).map((each) => new Run(each));
const box = document.getElementById("runs");
let active = runs[0];
const together = document.getElementById("together");

function move(moved) {
  active = moved;
  if (together?.checked) {
    const us = moved.steps[moved.at]?.[TIME] ?? 0;
    for (const other of runs) if (other !== moved) other.goToTime(us);
  }
  draw();
}

function draw() {
  for (const run of runs) {
    const fresh = drawn(run, move);
    run.place_ = run.place_ ? morph(run.place_, fresh) : box.appendChild(fresh);
    const field = run.place_.querySelector('input[type="range"]');
    field.value = String(run.at);
  }
}

const KEYS = {
  ArrowRight: (run) => run.step(1), ArrowLeft: (run) => run.step(-1), Home: (run) => run.step(-Infinity), End: (run) => run.step(Infinity),
  PageDown: (run) => run.step(AFTER), PageUp: (run) => run.step(-AFTER),
  f: (run) => run.seek("fault", 1), F: (run) => run.seek("fault", -1), v: (run) => run.goToTime(Infinity),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, summary, .scroll")) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act(active);
  move(active);
});
setUpTheme();
draw();
