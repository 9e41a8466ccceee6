// Gives the worker what the first view shows: the browser fetches it while the scripts still come.
import { Engine, surroundings } from "./engine.js";
import { filter, levels, period, shape } from "./asked.js";
import { chunkPath, isOfDays, meets } from "./paths.js";
import { now, site } from "../common/site.js";

/** Days that are fetched before the worker asks for them. */
const MOST_DAYS = 3;

export const engine = new Engine();
let first = { rows: levels(), period: period() };
const paths = [...document.querySelectorAll("link[data-first]")].map((link) => link.dataset.first);
engine.tell("begin", { ...surroundings(now()), filter: filter() });
engine.tell("coming", { paths });
engine.tell("shape", shape());
for (const path of paths) give(path);
const asked = ask(first);
Object.values(asked).forEach((answer) => answer.catch(() => {})); // who takes them is told

/** Take what the document has named for the worker, and the days that follow from it; what fails it asks for itself, and tells why. */
async function give(path) {
  const answer = await fetch(new URL(`v1/gantt/${path}`, site.root)).catch(() => null);
  const body = answer?.ok ? await answer.arrayBuffer().catch(() => null) : null;
  if (body && isOfDays(path)) giveDays(JSON.parse(new TextDecoder().decode(body)).items);
  engine.tell("given", { path, body }, body ? [body] : []);
}

/** Fetch the days that the period meets, a few of them: of more the worker knows better which come first. */
function giveDays(items) {
  const [from, to] = first?.period ?? [], met = items.filter((item) => meets(item, from, to));
  if (!first || met.length > MOST_DAYS) return;
  const chunks = met.map((item) => chunkPath(item));
  engine.tell("coming", { paths: chunks });
  chunks.forEach(give);
}

function ask({ rows, period: [from, to] }) {
  const found = { rows: engine.ask("rows", { levels: rows }), live: engine.ask("live"), days: engine.ask("period", { from, to }) };
  return { ...found, rest: Promise.all([found.live, found.days]) };
}

/** Return what was asked for at first, once, as soon as there are rows: {rows, from, to, rest}, `rest` is what comes then; null afterwards. */
export async function taken() {
  if (!first) return null;
  const [from, to] = first.period;
  first = null;
  return { rows: await asked.rows, from, to, rest: asked.rest };
}
