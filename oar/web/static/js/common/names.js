// What there is on the site, by name: what the search offers, and what fields suggest.
import { get } from "./api.js";
import { draw, h } from "./dom.js";
import { naturally } from "./format.js";

/** Jobs of which the names of users, projects and types are taken; names that a field suggests. */
const LOOKED_AT = 2000, MOST = 500;

let asked = null;

/** Return the names of what there is, {nodes, queues, users, projects, types}, null if the service does not answer. */
export function learnNames() {
  asked ??= Promise.all([get("nodes"), get("queues"), get("jobs", { limit: LOOKED_AT, fold: true, details: true })]).then(([nodes, queues, jobs]) => ({
    nodes: sorted(nodes.items.map((node) => node.name)), queues: sorted(queues.items.map((queue) => queue.name)),
    users: sorted(jobs.items.map((job) => job.user)), projects: sorted(jobs.items.map((job) => job.project)), types: sorted(jobs.items.flatMap((job) => job.types)),
  })).catch(() => (asked = null));
  return asked;
}

function sorted(names) {
  return [...new Set(names)].filter(Boolean).sort(naturally);
}

/** Return what makes a field suggest names, {attributes, on, list}: they are fetched when somebody comes to the field. */
export function suggestions(kind) {
  const id = `names-${kind}`;
  const fill = async () => {
    const names = await learnNames(), place = document.getElementById(id);
    if (names && place) draw(place, names[kind].slice(0, MOST).map((value) => h("option", { key: value, value })));
  };
  return { attributes: { list: id }, on: { focus: fill }, list: h("datalist", { id, key: id }) };
}
