// The shell: which page is shown, the pages' list, keys, theme, and what is wrong with the reading.

import { current, go, href, onChange } from "./address.js";
import { h, morph } from "./dom.js";
import { duration } from "./format.js";
import { setUpKeys } from "./keys.js";
import { get, Live } from "./live.js";
import { PAGES } from "./pages.js";
import { session, setUpToken } from "./session.js";
import { setUpTheme } from "./theme.js";

const content = document.getElementById("content");
const pulse = document.getElementById("pulse");
let last = null;
let trouble = null;
// When the last document came, and how often ages on the page grow while none comes.
let heardAt = 0;
const AGES_MS = 5_000;

const live = new Live(
  (doc) => {
    last = doc;
    heardAt = performance.now();
    draw();
  },
  (text) => {
    trouble = text;
    draw();
  },
);

function draw() {
  const { page, params } = current();
  const chosen = PAGES[page];
  if (!chosen) {
    show(h("div", null, h("h1", null, "No such page"), h("p", null, h("a", { href: "/" }, "To the cluster"))));
    return;
  }
  document.title = `${chosen.module.title(params)} · tidelog console`;
  const doc = last?.page === page ? { ...last, time_ms: last.time_ms + Math.round(performance.now() - heardAt) } : null;
  drawPulse();
  show(h("div", null, notes(doc),
    doc ? chosen.module.render(doc, params) : h("p", { class: "nothing", role: "status" }, trouble ? "" : "Reading the cluster…")));
}

function show(tree) {
  tree.id = "view";
  const old = document.getElementById("view");
  if (old) morph(old, tree);
  else content.replaceChildren(tree);
}

function notes(doc) {
  const texts = [];
  if (trouble) texts.push(["bad", trouble]);
  for (const note of doc?.notes ?? []) {
    const old = note.read_ms ? ` What is shown is ${duration(doc.time_ms - note.read_ms)} old.` : "";
    texts.push(["warn", note.text + old]);
  }
  return texts.length ? h("ul", { class: "notes", "aria-label": "What is missing" }, texts.map(([level, text]) => h("li", { class: level }, text))) : null;
}

function drawPulse() {
  const text = trouble ? "not connected" : last ? "live" : "connecting";
  pulse.className = `pulse ${trouble ? "bad" : "good"}`;
  if (pulse.textContent !== text) pulse.textContent = text;
}

function follow(isNewPage) {
  const { page, params } = current();
  const chosen = PAGES[page];
  if (isNewPage) {
    trouble = null;
    for (const link of document.querySelectorAll("#pages a")) {
      const isHere = link.dataset.page === (chosen?.parent ?? page);
      if (isHere) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.getElementById("view")?.remove();
    if (last?.page === page) last = null;
    content.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  if (chosen?.module.load) {
    live.stop();
    // An answer that comes after the visitor has gone on belongs to no page.
    const asked = location.href;
    chosen.module.load(params, (doc) => {
      if (location.href !== asked) return;
      last = { page, notes: [], ...doc };
      trouble = null;
      draw();
    }, (text) => {
      if (location.href !== asked) return;
      trouble = text;
      draw();
    });
  } else if (chosen) live.show(page, params);
  else live.stop();
  draw();
}

function drawPages() {
  const names = Object.entries(PAGES).filter(([, page]) => page.label);
  document.getElementById("pages").append(h("ul", null, names.map(([name, page]) =>
    h("li", null, h("a", { href: href(name), "data-page": name, "aria-keyshortcuts": `g ${page.key}` }, page.label)))));
}

drawPages();
setUpTheme();
setUpKeys(go);
onChange(follow);
setInterval(() => last && !document.hidden && draw(), AGES_MS);
get("/api/session").then((found) => {
  Object.assign(session, found);
  document.getElementById("where").textContent = found.bootstrap;
  setUpToken();
  draw();
}, () => {});
follow(true);
