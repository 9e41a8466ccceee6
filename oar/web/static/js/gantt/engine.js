// The page's end of the worker that holds the jobs: questions with answers, and tiles.
import { script, site } from "../common/site.js";

/** A worker; `hear(tile)` gets the tiles that it has painted. */
export class Engine {
  hear = (tile) => tile.picture.close();

  constructor() {
    this.worker = new Worker(script("gantt/worker.js"), { type: "module", name: "oar-gantt" });
    this.waiting = new Map();
    this.number = 0;
    this.worker.onmessage = ({ data }) => (data.tile ? this.hear(data) : this.settle(data));
    this.worker.onerror = () => this.waiting.forEach(([, fail]) => fail(new Error("worker")));
  }

  /** Tell something that has no answer. */
  tell(kind, message = {}, transferred = []) {
    this.worker.postMessage({ ...message, kind }, transferred);
  }

  /** Ask something.  Throws an error of which `record` is set if the service has told what is wrong. */
  ask(kind, message = {}) {
    const number = (this.number += 1);
    this.worker.postMessage({ ...message, kind, number });
    return new Promise((take, fail) => this.waiting.set(number, [take, fail]));
  }

  settle({ number, answer, trouble }) {
    const [take, fail] = this.waiting.get(number) ?? [];
    this.waiting.delete(number);
    if (trouble === undefined) take?.(answer);
    else fail?.(Object.assign(new Error(trouble), { record: trouble ? { detail: trouble } : null }));
  }
}

/** Return what the worker has to know of the page. */
export function surroundings(now) {
  return { root: site.root, ahead: now - Date.now() / 1000 };
}
