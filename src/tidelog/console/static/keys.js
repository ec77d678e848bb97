// Keys: `/` filter, `j` and `k` rows, `g` and a letter pages, `?` this list. They can be turned off.

import { href } from "./address.js";
import { open } from "./dialog.js";
import { h } from "./dom.js";
import { PAGES } from "./pages.js";

const KEY = "tidelog-keys";
const isOn = () => localStorage.getItem(KEY) !== "off";
let waitsForPage = false;

export function setUpKeys(go) {
  document.getElementById("keys").addEventListener("click", showKeys);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target;
    if (event.key === "Escape" && target.matches?.("input.filter")) {
      target.blur();
      return;
    }
    if (!isOn() || target.closest?.("input, textarea, select, dialog")) return;
    if (waitsForPage) {
      waitsForPage = false;
      const found = Object.entries(PAGES).find(([, page]) => page.label && page.key === event.key);
      if (found) {
        event.preventDefault();
        go(href(found[0]));
      }
      return;
    }
    const action = { "/": focusFilter, j: () => moveRow(1), k: () => moveRow(-1), g: () => (waitsForPage = true), "?": showKeys }[event.key];
    if (action) {
      event.preventDefault();
      action();
    }
  });
}

function focusFilter() {
  const field = document.querySelector("input.filter");
  field?.focus();
  field?.select();
}

function moveRow(step) {
  const rows = [...document.querySelectorAll("tbody tr")].map((row) => row.querySelector("a.row")).filter(Boolean);
  const here = document.activeElement?.closest?.("tr")?.querySelector("a.row");
  const next = rows[Math.max(0, Math.min(rows.length - 1, rows.indexOf(here) + step))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function showKeys() {
  const rows = [["/", "filter the table"], ["j, k", "next and previous row"], ["Enter", "open the row"],
    ...Object.values(PAGES).filter((page) => page.label).map((page) => [`g ${page.key}`, page.label]), ["?", "this list"]];
  const box = h("input", { type: "checkbox" });
  box.checked = isOn();
  box.addEventListener("change", () => localStorage.setItem(KEY, box.checked ? "on" : "off"));
  const dialog = open(h("div", null,
    h("h2", { id: "keys-title" }, "Keys"),
    h("dl", { class: "keys" }, rows.map(([key, text]) => h("div", null, h("dt", null, h("kbd", null, key)), h("dd", null, text)))),
    h("label", { class: "check" }, box, h("span", null, "Single keys act")),
    h("div", { class: "buttons" }, h("button", { type: "button", class: "primary", on: { click: () => dialog.close() } }, "Close"))), "keys-title");
}
