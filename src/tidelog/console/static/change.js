// Changes: a dialog asks, a dry run shows what would be done, and only a second yes does it.

import { ask } from "./dialog.js";
import { h } from "./dom.js";
import { mayChange, token } from "./session.js";

async function post(action, body) {
  const response = await fetch(`/api/actions/${action}`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-tidelog-token": token() },
    body: JSON.stringify(body),
  });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error ?? `the console answered ${response.status}`);
  return answer;
}

const MOST = 12;
const lines = (answer) =>
  [answer.text, ...(answer.rows ?? []).slice(0, MOST).map((row) => `${row.topic}-${row.partition}: ${row.before} to ${row.after}`),
    (answer.rows ?? []).length > MOST && `and ${answer.rows.length - MOST} more`].filter(Boolean).join("\n");

/** Return a button for a change, or nothing for viewers who may not change the cluster. */
export function changeButton({ label, action, title, text, fields = [], body }) {
  if (!mayChange()) return null;
  return h("button", { type: "button", key: `change-${action}-${label}`, on: { click: () => run() } }, label);

  async function run() {
    const given = fields.length ? await ask({ title, text, fields, confirm: "Show what would be done" }) : {};
    if (!given) return;
    try {
      const change = body(given);
      const planned = await post(action, { ...change, dry_run: true });
      if (planned.plan?.length === 0) {
        await ask({ title, text: planned.text, confirm: "Close" });
        return;
      }
      if (!(await ask({ title, text: lines(planned), confirm: label, danger: true }))) return;
      // A plan is sent back: what begins is what was shown.
      const done = await post(action, planned.plan ? { ...change, plan: planned.plan } : change);
      await ask({ title: "Done", text: lines(done), confirm: "Close" });
    } catch (error) {
      await ask({ title: "Not done", text: error.message, confirm: "Close" });
    }
  }
}
