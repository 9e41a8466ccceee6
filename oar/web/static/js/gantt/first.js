// Begins what the first view shows: the worker fetches it while the scripts of the page still come.
import { Engine, surroundings } from "./engine.js";
import { filter, levels, period, shape } from "./asked.js";
import { now } from "../common/site.js";

export const engine = new Engine();
let first = { rows: levels(), period: period() };
engine.tell("begin", { ...surroundings(now()), filter: filter() });
engine.tell("shape", shape());
const asked = ask(first);
Object.values(asked).forEach((answer) => answer.catch(() => {})); // who takes them is told

function ask({ rows, period: [from, to] }) {
  const found = { days: engine.ask("period", { from, to }), rows: engine.ask("rows", { levels: rows }), live: engine.ask("live") };
  return { ...found, rest: Promise.all([found.live, found.days]) };
}

/** Return what was asked for at first, once, as soon as there are rows: {rows, from, to, rest}, `rest` is what comes then; null afterwards. */
export async function taken() {
  if (!first) return null;
  const [from, to] = first.period;
  first = null;
  return { rows: await asked.rows, from, to, rest: asked.rest };
}
