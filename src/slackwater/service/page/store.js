/** What the page remembers: in the browser's storage, or where that is blocked for as long as the page is open. */

class Store {
  #kept = new Map();
  #storage;

  /** ``storage`` gives the browser's own; where it is blocked already to look for it is an error. */
  constructor(storage) {
    this.#storage = storage;
  }

  get(name) {
    if (this.#kept.has(name)) return this.#kept.get(name);
    try {
      return this.#storage().getItem(name);
    } catch {
      return null;
    }
  }

  set(name, text) {
    this.#kept.set(name, text);
    try {
      this.#storage().setItem(name, text);
    } catch {
      // blocked or full: it is known until the page is closed
    }
  }
}

/** Of this tab. */
export const ofTab = new Store(() => sessionStorage);
/** Of this browser. */
export const ofBrowser = new Store(() => localStorage);
