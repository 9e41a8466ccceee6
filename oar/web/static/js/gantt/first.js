// Begins to fetch what the first view shows while the other scripts of the page still come.
import { Engine, surroundings } from "./engine.js";
import { filter, levels, period, shape } from "./asked.js";
import { now } from "../common/site.js";

export const engine = new Engine();
engine.tell("begin", { ...surroundings(now()), filter: filter() });
engine.tell("shape", shape());
let first = { rows: levels(), period: period() };
const asked = ask(first);
asked.catch(() => {}); // who takes it is told

function ask({ rows, period: [from, to] }) {
  return Promise.all([engine.ask("rows", { levels: rows }), engine.ask("live"), engine.ask("period", { from, to })]);
}

/** Return what was asked for at first as [rows, live, days] with its period, once; null afterwards. */
export async function taken() {
  if (!first) return null;
  const [from, to] = first.period;
  first = null;
  const [rows, , days] = await asked;
  return { rows, days, from, to };
}
