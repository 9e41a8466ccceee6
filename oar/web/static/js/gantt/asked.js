// What the address of the page asks for: rows, a period, filters.
import { parameters } from "../common/address.js";
import { now } from "../common/site.js";

const DAY = 86400;
/** Of the period that is shown at first so much is past. */
export const PAST = 0.6;
/** Fields that choose jobs; the others fade. */
export const FIELDS = ["user", "queue", "project", "state", "outcome", "type", "efficiency", "q"];
/** DrawGantt has a row for each resource, this high, and shows what goes beyond the screen by scrolling. */
const AS_DRAWGANTT = { rows: "network_address,resource_id", unit: 20 };

/** Return the properties by which resources are put into rows, outer ones first. */
export function levels() {
  const { rows, view: kind } = parameters();
  return rows || (kind === "drawgantt" ? AS_DRAWGANTT.rows : "network_address");
}

/** Return the height of rows, 0: all of them are seen. */
export function unit() {
  const { unit: given, view: kind } = parameters();
  return Number(given) > 0 ? Number(given) : kind === "drawgantt" ? AS_DRAWGANTT.unit : 0;
}

/** Return from when until when. */
export function period() {
  const { from, to } = parameters(), begin = Number(from), end = Number(to);
  if (begin >= 0 && end > begin && from) return [begin, end];
  return [now() - PAST * DAY, now() + (1 - PAST) * DAY];
}

/** Return what jobs are chosen by. */
export function filter() {
  const given = parameters();
  return Object.fromEntries(FIELDS.map((name) => [name, given[name] ?? ""]));
}

/** Return which groups are one row, and what is in the names of rows that are shown. */
export function shape() {
  const { fold, node } = parameters();
  return { folded: fold?.split(",").filter(Boolean) ?? [], word: node ?? "" };
}

/** Return where a job would be that was asked for only: {begin, end, nodes}; null if nothing was. */
export function supposed() {
  const { would, on } = parameters(), [begin, length] = (would ?? "").split(",").map(Number);
  return begin > 0 && length > 0 && on ? { begin, end: begin + length, nodes: new Set(on.split(",")) } : null;
}
