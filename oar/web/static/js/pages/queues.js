// Which queues there are, and what they hold.
import { Acts } from "../acts.js";
import { get, patch } from "../common/api.js";
import { h } from "../common/dom.js";
import { number } from "../common/format.js";
import { page, site } from "../common/site.js";
import { table } from "../common/parts.js";
import { run } from "../common/page.js";
import { t } from "../common/words.js";

const COUNTED = { running: ["Running"], waiting: ["Waiting"], hold: ["Hold"], other: ["toLaunch", "Launching", "Suspended", "Resuming", "Finishing", "toError", "toAckReservation"] };
const LABELS = { running: t("queue.running"), waiting: t("queue.waiting"), hold: t("queue.hold"), other: t("queue.other") };

function columns() {
  const counted = Object.entries(COUNTED).map(([key, states]) => ({
    key, label: LABELS[key], kind: "number",
    cell: (queue) => number(states.reduce((sum, state) => sum + (queue.jobs[state] ?? 0), 0)),
  }));
  return [
    { key: "name", label: t("queue.queue"), cell: (queue) => h("a", { href: page("jobs", null, { queue: queue.name }) }, queue.name) },
    { key: "state", label: t("queue.state"), cell: (queue) => h("span", { class: queue.state === "Active" ? "good" : "bad" }, queue.state === "Active" ? t("queue.active") : t("queue.stopped")) },
    { key: "priority", label: t("queue.priority"), kind: "number", cell: (queue) => queue.priority },
    { key: "policy", label: t("queue.policy"), cell: (queue) => queue.policy },
    ...counted,
    ...(site.administers ? [{ key: "acts", label: t("queue.acts"), cell: queueActs }] : []),
  ];
}

const acts = new Acts(() => actions.show(), () => actions.refresh());

/** Let administrators stop a queue and start it again. */
function queueActs({ name, state }) {
  const change = (key, label, enabled, question) => ({ key, label, question, run: () => patch(`queues/${encodeURIComponent(name)}`, { enabled }) });
  return acts.view([state === "Active" ? change("stop", t("queue.stop"), false, t("queue.stop_question", { queue: name })) : change("start", t("queue.start"), true)], name);
}

const actions = run({
  load: (signal) => get("queues", {}, signal),
  view: (queues) => [h("h1", {}, t("queues.title")), table(t("queues.title"), columns(), queues.items, (queue) => queue.name, t("queues.none"))],
  concerns: (message) => ["state", "jobs", "queues"].includes(message.name),
});
