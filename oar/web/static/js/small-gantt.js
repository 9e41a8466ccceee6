// Jobs over time on a few nodes, drawn small: beside what a page tells of a node, or of a job that is only thought of.
import { get } from "./common/api.js";
import { h } from "./common/dom.js";
import { time } from "./common/format.js";
import { nodeLink, RESOURCE_WORDS } from "./common/parts.js";
import { now, page } from "./common/site.js";
import { t } from "./common/words.js";
import { cssOf, ofJob, whole } from "./gantt/colours.js";
import { pieces } from "./gantt/rows.js";

const DAY = 86_400;
/** Nodes that are drawn; pixels of a lane, of a row at least and at most. */
const MOST_NODES = 8, LANE = 10, LOWEST = 22, HIGHEST = 160;
/** The drawing of a row in its own units. */
const WIDTH = 1000;
const STATES = { Absent: "fill-absent", Suspected: "fill-suspected", Dead: "fill-dead" };

/** Fetch what some nodes do in a period; of many nodes the first. */
export function stripOf(nodes, from, to, signal) {
  return get("gantt/nodes", { node: nodes.slice(0, MOST_NODES).join(), from: Math.floor(from), to: Math.floor(Math.min(to, from + 30 * DAY)) }, signal);
}

/** Show what nodes do, a row for each; `would` = {begin, end, nodes}: where a job would be; `id`: a job that is outlined. */
export function strip(record, { would = null, id = 0 } = {}) {
  const { from, to, nodes } = record, at = now();
  return h("div", { class: "strip", key: "strip" },
    nodes.map((node) => h("div", { class: "line", key: node.name }, nodes.length > 1 && nodeLink(node.name), row(record, node, would, id))),
    h("p", { class: "faint ends" }, time(from), at > from && at < to && h("span", { class: "middle" }, t("gantt.line_now")), time(to)));
}

function row({ from, to, jobs, states }, node, would, id) {
  const place = placing(node), { lanes } = place, scale = WIDTH / (to - from);
  const x = (date) => Math.max(0, Math.min(WIDTH, (date - from) * scale));
  const box = (begin, end, top, bottom, more, title) => h("rect", { x: x(begin), y: top, width: Math.max(1, x(end) - x(begin)), height: bottom - top, ...more }, title && h("title", {}, title));
  const off = states.flatMap((each) => place.of(each.resources).map(([top, bottom]) => box(each.from, each.to ?? Math.max(from, Math.min(to, now())), top, bottom, { class: `off ${STATES[each.state]}` }, RESOURCE_WORDS[each.state])));
  const here = jobs.filter((job) => place.of(job.resources).length);
  const words = [node.name, t("jobs.count", { n: here.length })].join(": ");
  return h("svg", { class: "lanes", height: Math.max(LOWEST, Math.min(HIGHEST, lanes * LANE)), viewBox: `0 0 ${WIDTH} ${lanes}`, preserveAspectRatio: "none", role: "img", "aria-label": words },
    off, here.flatMap((job) => drawn(job, place.of(job.resources), box, to, job.id === id)),
    would?.nodes.includes(node.name) && box(would.begin, would.end, 0, lanes, { class: "would" }),
    h("line", { class: "present", x1: x(now()), x2: x(now()), y1: 0, y2: lanes }));
}

/** Return what tells which lanes of a node resources have: one for each of its own. */
function placing(node) {
  let lanes = 0;
  const segments = node.resources.map(([first, count]) => ({ first, count, top: (lanes += count) - count, each: 1 }));
  const of = (ranges, found = []) => (ranges.forEach(([first, count]) => pieces(segments, first, count, (top, bottom) => found.push([top, bottom]))), found);
  return { lanes, of };
}

/** Draw a job: what it ran, what it may run on, what is planned. */
function drawn(job, places, box, to, isSought) {
  const fill = cssOf(whole(ofJob(job.id, isDark()))), at = now(), end = job.end ?? to;
  const title = [job.id, job.name, job.user].filter(Boolean).join(" · "), open = () => location.assign(page("jobs", job.id));
  const part = (from, until, kind) => places.map(([top, bottom]) => box(from, until, top, bottom, { fill, class: isSought ? `${kind} sought` : kind, on: { click: open } }, title));
  if (job.is_planned) return part(job.start, end, "plan");
  return [part(job.start, job.is_over ? end : Math.min(at, end), "ran"), !job.is_over && end > at && part(at, end, "rest")];
}

function isDark() {
  return getComputedStyle(document.documentElement).getPropertyValue("--dark").trim() === "1";
}
