// Rows of lists of jobs: the service makes one row of the jobs of an array that are alike, and tells which these are.
import { h } from "./common/dom.js";
import { jobLink } from "./common/parts.js";
import { page } from "./common/site.js";
import { t } from "./common/words.js";

/** Return the number of jobs of a row. */
export function sizeOf(row) {
  return row.members?.total ?? 1;
}

/** Return the number of jobs of several rows. */
export function jobsIn(rows) {
  return rows.reduce((sum, row) => sum + sizeOf(row), 0);
}

/** Return the ids of the jobs of a row. */
export function idsOf(row) {
  return row.members?.jobs.flatMap(([first, count]) => Array.from({ length: count }, (_, step) => first + step)) ?? [row.id];
}

/** Return the highest id of a row. */
export function lastOf(row) {
  const [first, count] = row.members?.jobs.at(-1) ?? [row.id, 1];
  return first + count - 1;
}

/** Return what stays the same of a row while jobs enter and leave it. */
export function keyOf(row) {
  return sizeOf(row) > 1 ? `${row.array} ${row.state} ${row.exit_code || 0} ${row.outcome}` : row.id;
}

/** Show the first job of a row, and links to the others and to their array; `filters`: those of the list. */
export function numbered(row, filters) {
  if (sizeOf(row) === 1) return jobLink(row);
  return [jobLink(row), " ", h("a", { href: page("jobs", null, { ...filters, array: row.array, state: row.state }) }, t("nodes.more", { n: sizeOf(row) - 1 })),
    " · ", h("a", { href: page("arrays", row.array) }, t("array.array"))];
}
