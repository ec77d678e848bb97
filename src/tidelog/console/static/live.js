// Documents of pages: live by server-sent events, or once. A page that nobody looks at is not live.

export async function get(path) {
  const response = await fetch(path, { headers: { accept: "application/json" } });
  const document_ = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(document_.error ?? `the console answered ${response.status}`);
  return document_;
}

const RETRY_MS = [500, 1_000, 2_000, 5_000];

/** Call `onDocument` with each new document of a page, `onTrouble` with a sentence or null. */
export class Live {
  constructor(onDocument, onTrouble) {
    this.onDocument = onDocument;
    this.onTrouble = onTrouble;
    this.failures = 0;
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.close();
      else if (this.query) this.open();
    });
  }

  show(page, params) {
    this.query = { page, search: params.toString() };
    this.failures = 0;
    this.open();
  }

  stop() {
    this.query = null;
    this.close();
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  open() {
    this.close();
    if (document.hidden) return;
    const query = this.query;
    const source = new EventSource(`/api/live/${query.page}?${query.search}`);
    this.source = source;
    source.onmessage = (event) => {
      if (query !== this.query) return;
      this.failures = 0;
      this.onTrouble(null);
      this.onDocument(JSON.parse(event.data));
    };
    source.onerror = () => {
      if (source !== this.source) return;
      this.close();
      this.explain(query);
    };
  }

  async explain(query) {
    try {
      const found = await get(`/api/view/${query.page}?${query.search}`);
      if (query === this.query) {
        this.onTrouble(null);
        this.onDocument(found);
      }
    } catch (error) {
      const lost = error instanceof TypeError;
      const text = lost ? "The console's process does not answer. Its terminal says why." : error.message;
      if (query === this.query) this.onTrouble(text);
    }
    if (query !== this.query) return;
    const wait = RETRY_MS[Math.min(this.failures, RETRY_MS.length - 1)];
    this.failures += 1;
    this.timer = setTimeout(() => query === this.query && this.open(), wait);
  }
}
