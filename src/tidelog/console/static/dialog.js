// Modal dialogs: the browser's own element keeps the focus inside and closes with Escape.

import { h } from "./dom.js";

/** Show a dialog with fields; return their values by name, or null if it was cancelled. */
export function ask({ title, text, fields = [], confirm, danger = false }) {
  return new Promise((resolve) => {
    const form = h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      text && h("p", null, text),
      fields.map((field) => h("label", null, h("span", null, field.label), control(field))),
      h("div", { class: "buttons" },
        h("button", { type: "button", class: "quiet", on: { click: () => dialog.close("") } }, "Cancel"),
        h("button", { class: danger ? "danger" : "primary", value: "yes" }, confirm)));
    const dialog = open(form, "dialog-title", () => {
      resolve(dialog.returnValue === "yes" ? Object.fromEntries(new FormData(form)) : null);
    });
  });
}

function control(field) {
  const props = { name: field.name, required: field.required, autocomplete: "off", spellcheck: "false", value: field.value ?? "" };
  if (field.options) {
    return h("select", { name: field.name }, field.options.map(([value, label]) =>
      h("option", { value, selected: value === field.value }, label)));
  }
  if (field.rows) return h("textarea", { ...props, rows: field.rows });
  return h("input", { ...props, type: field.type ?? "text", min: field.min, placeholder: field.placeholder });
}

/** Show content in a dialog; call `onClose` when it has closed. Return the dialog. */
export function open(body, labelledBy, onClose) {
  const dialog = h("dialog", { "aria-labelledby": labelledBy }, body);
  dialog.addEventListener("close", () => {
    dialog.remove();
    onClose?.();
  });
  document.getElementById("dialogs").append(dialog);
  dialog.showModal();
  return dialog;
}
