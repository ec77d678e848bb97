// The page's address: which page, and its parameters. Every state of a page can be linked to.

const listeners = [];
export const onChange = (listener) => listeners.push(listener);
const changed = (isNewPage) => listeners.forEach((listener) => listener(isNewPage));

export function current() {
  const name = location.pathname.slice(1) || "cluster";
  return { page: name, params: new URLSearchParams(location.search) };
}

/** Return the address of a page; parameters without a value are left out. */
export function href(page, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return `/${page === "cluster" ? "" : page}${text ? `?${text}` : ""}`;
}

export function go(address) {
  history.pushState(null, "", address);
  changed(true);
}

/** Change parameters of this page in place; the page stays, and so does the focus. */
export function setParams(changes) {
  const { page, params } = current();
  const next = { ...Object.fromEntries(params), ...changes };
  history.replaceState(null, "", href(page, next));
  changed(false);
}

addEventListener("popstate", () => changed(true));
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  const isPlain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
  if (!link || !isPlain || link.target || link.hasAttribute("download")) return;
  if (link.origin !== location.origin || link.hash || link.pathname.startsWith("/static/")) return;
  event.preventDefault();
  go(link.pathname + link.search);
});
