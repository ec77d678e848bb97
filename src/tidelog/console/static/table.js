// Tables: filter, order and length are in the page's address, and rows come ready from the server.

import { current, setParams } from "./address.js";
import { h } from "./dom.js";
import { count } from "./format.js";

let typing;

/**
 * Return a table of `data` ({rows, matching, total}).
 *
 * A column has `title`, `cell(row)`, and perhaps `sort` (the row's key), `number`, and `level`:
 * columns of level 2 and 3 are hidden on narrow screens. `key(row)` names a row among its siblings.
 */
export function table({ caption, columns, data, key, filter = true, empty }) {
  const { params } = current();
  return h("section", { class: "table", "aria-label": caption },
    h("div", { class: "table-head" },
      h("h2", null, caption),
      filter && filterField(caption, params),
    ),
    data.rows.length
      ? h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `${caption}, table` },
          h("table", null,
            h("caption", { class: "unseen" }, caption),
            h("thead", null, h("tr", null, columns.map((column) => header(column, params)))),
            h("tbody", null, data.rows.map((row) => h("tr", { key: key(row) }, columns.map((column) => cell(column, row))))),
          ))
      : h("p", { class: "nothing" }, data.total ? "No row has these words." : empty ?? "There is nothing here yet."),
    h("p", { class: "count", role: "status" }, summary(data), more(data)),
  );
}

function filterField(caption, params) {
  return h("input", {
    type: "search", class: "filter", placeholder: "Filter", "aria-label": `Filter ${caption}`,
    "aria-keyshortcuts": "/", value: params.get("q") ?? "", spellcheck: "false",
    on: {
      input: (event) => {
        clearTimeout(typing);
        const text = event.target.value;
        typing = setTimeout(() => setParams({ q: text, limit: "" }), 150);
      },
    },
  });
}

function header(column, params) {
  const props = { scope: "col", class: classes(column) };
  if (!column.sort) return h("th", props, column.title);
  const sort = params.get("sort") ?? column.default ?? "";
  const isUp = sort === column.sort;
  const isDown = sort === `-${column.sort}`;
  const next = isUp ? `-${column.sort}` : isDown ? column.sort : column.number ? `-${column.sort}` : column.sort;
  props["aria-sort"] = isUp ? "ascending" : isDown ? "descending" : null;
  return h("th", props,
    h("button", { type: "button", class: "sort", on: { click: () => setParams({ sort: next }) } },
      column.title, h("span", { class: "arrow", "aria-hidden": "true" }, isUp ? "↑" : isDown ? "↓" : "")));
}

const cell = (column, row) => h("td", { class: classes(column) }, column.cell(row));
const classes = (column) =>
  [column.number && "number", column.level && `level-${column.level}`, column.class].filter(Boolean).join(" ") || null;

function summary(data) {
  const shown = data.rows.length;
  if (shown === data.total) return `${count(data.total)} in all`;
  if (shown === data.matching) return `${count(shown)} of ${count(data.total)} match`;
  return `The first ${count(shown)} of ${count(data.matching)}`;
}

function more(data) {
  if (data.rows.length >= data.matching) return null;
  const limit = Math.min(5_000, data.rows.length + 300);
  return h("button", { type: "button", class: "quiet", on: { click: () => setParams({ limit }) } }, "Show more");
}
