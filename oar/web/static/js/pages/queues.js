// Which queues there are, and what they hold.
import { Acts } from "../acts.js";
import { get, patch } from "../common/api.js";
import { h } from "../common/dom.js";
import { duration } from "../common/format.js";
import { page, site } from "../common/site.js";
import { table } from "../common/parts.js";
import { run } from "../common/page.js";
import { t } from "../common/words.js";
import { queueColumns } from "../queue-table.js";
import { LIMIT_UNITS, limitScope, tenth } from "../user-limits.js";

function columns({ about, limits }) {
  const { queue_notes: notes, default_walltime: walltime } = about;
  return [...queueColumns(),
    Object.keys(notes).length > 0 && { key: "notes", label: t("queue.who"), kind: "text", cell: ({ name }) => notes[name] && h("bdi", {}, notes[name]) },
    { key: "walltime", label: t("queue.walltime"), kind: "number", cell: () => duration(walltime) },
    limits && { key: "limits", label: t("queue.limits"), kind: "text", cell: ({ name }) => limitsOf(limits, name) }, ...(site.administers ? [{ key: "acts", label: t("queue.acts"), cell: queueActs }] : [])].filter(Boolean);
}

/** Show the limits that count jobs of a queue, with what is used of them. */
function limitsOf({ rules }, queue) {
  const all = rules.filter((rule) => rule.queue === null || rule.queue === queue).flatMap((rule) => rule.measures.map((measure) => ({ ...measure, of: limitScope(rule) })));
  if (!all.length) return t("queue.no_limits");
  return h("ul", { class: "plain" }, all.map(({ name, used, limit, of }, place) => h("li", { key: place }, t("queue.used_of", { used: tenth(used), limit: tenth(limit) }), ` ${LIMIT_UNITS[name]}`, of && [", ", of])));
}

async function load(signal) {
  const limited = site.user ? get("limits", { user: site.user }, signal).catch(() => null) : null;
  const [queues, about, limits] = await Promise.all([get("queues", {}, signal), get("site", {}, signal), limited]);
  return { queues, about, limits };
}

const acts = new Acts(() => actions.show(), () => actions.refresh());

/** Let administrators stop a queue and start it again. */
function queueActs({ name, state }) {
  const change = (key, label, enabled, question) => ({ key, label, question, run: () => patch(`queues/${encodeURIComponent(name)}`, { enabled }) });
  return acts.view([state === "Active" ? change("stop", t("queue.stop"), false, t("queue.stop_question", { queue: name })) : change("start", t("queue.start"), true)], name);
}

const actions = run({
  load,
  view: ({ queues, ...others }) => [h("h1", {}, t("queues.title")), table(t("queues.title"), columns(others), queues.items, (queue) => queue.name, t("queues.none")), site.administers && h("p", { key: "rules" }, h("a", { href: page("rules") }, t("rules.title")))],
  concerns: (message) => ["state", "jobs", "queues"].includes(message.name),
});
