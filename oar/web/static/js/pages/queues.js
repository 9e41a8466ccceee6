// Which queues there are, and what they hold.
import { Acts } from "../acts.js";
import { get, patch } from "../common/api.js";
import { h } from "../common/dom.js";
import { page, site } from "../common/site.js";
import { table } from "../common/parts.js";
import { run } from "../common/page.js";
import { t } from "../common/words.js";
import { queueColumns } from "../queue-table.js";

function columns() {
  return [...queueColumns(), ...(site.administers ? [{ key: "acts", label: t("queue.acts"), cell: queueActs }] : [])];
}

const acts = new Acts(() => actions.show(), () => actions.refresh());

/** Let administrators stop a queue and start it again. */
function queueActs({ name, state }) {
  const change = (key, label, enabled, question) => ({ key, label, question, run: () => patch(`queues/${encodeURIComponent(name)}`, { enabled }) });
  return acts.view([state === "Active" ? change("stop", t("queue.stop"), false, t("queue.stop_question", { queue: name })) : change("start", t("queue.start"), true)], name);
}

const actions = run({
  load: (signal) => get("queues", {}, signal),
  view: (queues) => [h("h1", {}, t("queues.title")), table(t("queues.title"), columns(), queues.items, (queue) => queue.name, t("queues.none")), site.administers && h("p", { key: "rules" }, h("a", { href: page("rules") }, t("rules.title")))],
  concerns: (message) => ["state", "jobs", "queues"].includes(message.name),
});
