// Elements that need no address: those of the console's pages, and of the page of a simulated run.

import { h } from "./dom.js";
import { NONE } from "./format.js";

const MARKS = { good: "●", note: "◆", warn: "▲", bad: "■" };

/** Return a state as a word with a mark: colour is never the only difference. */
export const state = (level, text) =>
  h("span", { class: `state ${level}` }, h("span", { class: "mark", "aria-hidden": "true" }, MARKS[level]), text);

/** Return broker ids, each of `out` struck out: what is in the list but not in sync. */
export const brokers = (ids, isIn = () => true) =>
  ids.length
    ? h("span", { class: "ids" }, ids.map((id) =>
        isIn(id) ? h("span", { class: "id" }, String(id)) : h("s", { class: "id out", title: `broker ${id} is out of the ISR` }, String(id))))
    : NONE;

export const figures = (entries) =>
  h("dl", { class: "figures" }, entries.filter(Boolean).map(([name, value, level]) =>
    h("div", { class: level ?? null }, h("dt", null, name), h("dd", null, value))));

export const page = (title, subtitle, ...children) =>
  h("div", { class: "page" },
    h("div", { class: "title" }, h("h1", null, title), subtitle && h("p", { class: "subtitle" }, subtitle)),
    children);

export const panel = (title, ...children) =>
  h("section", { class: "panel", "aria-label": title }, h("h2", null, title), children);
