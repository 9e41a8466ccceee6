// Rows of lists of jobs: those of an array that are in the same state are one row, until somebody unfolds it.
import { h } from "./common/dom.js";
import { jobLink } from "./common/parts.js";
import { page } from "./common/site.js";
import { t } from "./common/words.js";

/** Arrays whose jobs are shown one by one. */
const unfolded = new Set();

/** Make one row of jobs of an array that follow each other in the same state: that of the one with the lowest number, with `members`. */
export function folded(jobs) {
  const rows = [];
  for (const job of jobs) {
    const last = rows.at(-1);
    if (job.array && last?.array === job.array && last.state === job.state && !unfolded.has(job.array)) {
      const members = [...(last.members ?? [last]), job];
      rows[rows.length - 1] = { ...(job.id < last.id ? job : last), members };
    } else rows.push(job);
  }
  return rows;
}

/** Show a job; of a folded array how many others there are, and the way to all of them. */
export function numbered(job, redraw) {
  if (!job.members) return jobLink(job);
  const unfold = () => {
    unfolded.add(job.array);
    redraw();
    document.querySelector(`tbody a[href="${page("jobs", job.id)}"]`)?.focus(); // the button is gone
  };
  return [jobLink(job), " ", h("button", { type: "button", class: "link", "aria-expanded": "false", on: { click: unfold } }, t("nodes.more", { n: job.members.length - 1 })),
    " · ", h("a", { href: page("arrays", job.array) }, t("array.array"))];
}
