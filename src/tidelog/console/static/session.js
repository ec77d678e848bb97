// What this console allows, and the token of changes. The token comes with the printed address, as a
// fragment that browsers send to no server, and stays in this tab only.

import { ask } from "./dialog.js";

export const session = { allows_changes: false, bootstrap: "", version: "" };
const KEY = "tidelog-token";

export const token = () => sessionStorage.getItem(KEY) ?? "";
export const mayChange = () => session.allows_changes && token() !== "";

function takeToken() {
  const fragment = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!fragment) return false;
  sessionStorage.setItem(KEY, fragment);
  history.replaceState(null, "", location.pathname + location.search);
  return true;
}
takeToken();

export function setUpToken() {
  const button = document.getElementById("token");
  button.hidden = !session.allows_changes;
  const label = () => {
    button.textContent = token() ? "Lock changes" : "Unlock changes";
  };
  label();
  // The printed address may be entered where the console is already open: no page is loaded then.
  addEventListener("hashchange", () => {
    if (!takeToken()) return;
    label();
    dispatchEvent(new PopStateEvent("popstate"));
  });
  button.addEventListener("click", async () => {
    if (token()) sessionStorage.removeItem(KEY);
    else {
      const answer = await ask({
        title: "Unlock changes",
        text: "Enter the token that `tidelog console --allow-changes` printed at its start.",
        fields: [{ name: "token", label: "Token", type: "password", required: true }],
        confirm: "Unlock",
      });
      if (answer) sessionStorage.setItem(KEY, answer.token.trim());
    }
    label();
    dispatchEvent(new PopStateEvent("popstate"));
  });
}
