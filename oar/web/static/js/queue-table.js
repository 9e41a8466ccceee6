// The queues as a table: what they hold.
import { h } from "./common/dom.js";
import { duration, number } from "./common/format.js";
import { now, page } from "./common/site.js";
import { t } from "./common/words.js";

const COUNTED = { running: ["Running"], waiting: ["Waiting"], hold: ["Hold"], other: ["toLaunch", "Launching", "Suspended", "Resuming", "Finishing", "toError", "toAckReservation"] };
const LABELS = { running: t("queue.running"), waiting: t("queue.waiting"), hold: t("queue.hold"), other: t("queue.other") };

/** Return the columns of a table of queues. */
export function queueColumns() {
  const counted = Object.entries(COUNTED).map(([key, states]) => ({
    key, label: LABELS[key], kind: "number",
    cell: (queue) => number(states.reduce((sum, state) => sum + (queue.jobs[state] ?? 0), 0)),
  }));
  return [
    { key: "name", label: t("queue.queue"), cell: (queue) => h("a", { href: page("jobs", null, { queue: queue.name }) }, queue.name) },
    { key: "state", label: t("queue.state"), cell: (queue) => h("span", { class: queue.state === "Active" ? "good" : "bad" }, queue.state === "Active" ? t("queue.active") : t("queue.stopped")) },
    ...counted,
    { key: "oldest", label: t("queue.oldest"), kind: "number", cell: (queue) => (queue.oldest_waiting ? duration(now() - queue.oldest_waiting) : "–") },
    { key: "priority", label: t("queue.priority"), kind: "number", cell: (queue) => queue.priority },
    { key: "policy", label: t("queue.policy"), cell: (queue) => queue.policy },
  ];
}
