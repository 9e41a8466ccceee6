// Begins to fetch what the first view shows while the other scripts of the page, and those of the worker, still come.
import { Engine, surroundings } from "./engine.js";
import { filter, levels, period, shape } from "./asked.js";
import { dayOf, daysPath, lastDate, livePath, rowsPath } from "./paths.js";
import { now, site } from "../common/site.js";

export const engine = new Engine();
let first = { rows: levels(), period: period() };
const paths = [livePath(), daysPath(dayOf(first.period[0]), lastDate(now())), rowsPath(first.rows)];
engine.tell("begin", { ...surroundings(now()), filter: filter(), coming: paths });
engine.tell("shape", shape());
for (const path of paths) give(path);
const asked = ask(first);
asked.catch(() => {}); // who takes it is told

/** Fetch something for the worker; what fails it asks for itself, and tells why. */
async function give(path) {
  const answer = await fetch(new URL(`v1/gantt/${path}`, site.root), { cache: "no-cache" }).catch(() => null);
  const body = answer?.ok ? await answer.arrayBuffer().catch(() => null) : null;
  engine.tell("given", { path, body }, body ? [body] : []);
}

function ask({ rows, period: [from, to] }) {
  return Promise.all([engine.ask("rows", { levels: rows }), engine.ask("live"), engine.ask("period", { from, to })]);
}

/** Return what was asked for at first as {rows, days} with its period, once; null afterwards. */
export async function taken() {
  if (!first) return null;
  const [from, to] = first.period;
  first = null;
  const [rows, , days] = await asked;
  return { rows, days, from, to };
}
