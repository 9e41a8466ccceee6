// Who looks sees here what is his: jobs, limits, place, hours, how well his jobs used what they had, what to change.
import { get } from "../common/api.js";
import { h } from "../common/dom.js";
import { bytes, duration, number, percent, time } from "../common/format.js";
import { OUTCOME_WORDS, english, jobLink, nodeLinks, shareBar, stateChip, table } from "../common/parts.js";
import { run } from "../common/page.js";
import { page, site } from "../common/site.js";
import { t } from "../common/words.js";
import { LIMIT_UNITS, period, tenth } from "../user-limits.js";

const HOUR = 3600;
const KINDS = { quota: t("me.of_quota"), waiting: t("me.of_waiting") };
/** Advice on jobs of a name, by its code. */
const ADVICE = {
  memory: (values) => t("me.advice_memory", values), longer: (values) => t("me.advice_longer", values), failed: (values) => t("me.advice_failed", values),
  "fewer-cores": (values) => t("me.advice_cores", values), shorter: (values) => t("me.advice_shorter", values),
};
const RUNNING = [
  { key: "job", label: t("job.job"), cell: jobLink },
  { key: "state", label: t("job.state"), cell: (job) => stateChip(job.state) },
  { key: "queue", label: t("job.queue"), cell: (job) => job.queue },
  { key: "nodes", label: t("nodes.title"), cell: (job) => nodeLinks(job.nodes) },
  { key: "time", label: t("job.progress"), kind: "number", cell: progress },
];
const WAITING = [
  { key: "job", label: t("job.job"), cell: jobLink },
  { key: "state", label: t("job.state"), cell: (job) => stateChip(job.state) },
  { key: "queue", label: t("job.queue"), cell: (job) => job.queue },
  { key: "start", label: t("job.planned"), cell: (job) => time(job.scheduled_start) },
  { key: "why", label: t("job.why"), cell: (job) => english(job.why) },
];
const GROUPS = [
  { key: "name", label: t("me.name"), cell: (group) => (group.name ? h("a", { href: page("jobs", null, { user: site.user, name: group.name, state: "all" }) }, h("bdi", {}, group.name)) : "–") },
  { key: "jobs", label: t("jobs.title"), kind: "number", cell: (group) => number(group.jobs) },
  { key: "outcomes", label: t("me.outcomes"), cell: outcomes },
  { key: "hours", label: t("me.core_hours"), kind: "number", cell: (group) => tenth(group.core_seconds / HOUR) },
  { key: "cpu", label: t("usage.cpu"), kind: "number", cell: (group) => (group.cpu_efficiency === null ? "–" : percent(group.cpu_efficiency, 1)) },
  { key: "memory", label: t("usage.memory"), kind: "number", cell: (group) => bytes(group.memory_peak) },
];

function progress({ walltime, remaining }) {
  if (walltime === null || remaining === null) return "–";
  return [shareBar(walltime - remaining, walltime), ` ${t("job.of", { spent: duration(walltime - remaining), whole: duration(walltime) })}`];
}

function outcomes({ outcomes: counts }) {
  return Object.entries(counts).map(([outcome, count], place) => [place ? ", " : null, `${number(count)} ${OUTCOME_WORDS[outcome] ?? "?"}`]);
}

/** Say whose jobs a rule counts. */
function scope(rule) {
  const [queue, project, type, user] = rule.split(",");
  const who = user === "*" ? t("me.for_all") : user === "/" ? t("me.for_each_user") : t("me.for_user", { name: user });
  const where = [
    queue === "/" ? t("me.in_each_queue") : queue !== "*" && t("me.in_queue", { name: queue }),
    project === "/" ? t("me.in_each_project") : project !== "*" && t("me.in_project", { name: project }),
    type !== "*" && t("me.of_type", { name: type }),
  ];
  return [who, ...where.filter(Boolean)].join(" ");
}

function limit(item) {
  const end = item.next_end;
  return h("li", { key: `${item.kind} ${item.rule} ${item.name}` },
    h("bdi", {}, t("me.limit", { used: tenth(item.used), limit: tenth(item.limit), unit: LIMIT_UNITS[item.name], kind: KINDS[item.kind], scope: scope(item.rule) })), " ", shareBar(item.used, item.limit),
    item.used >= item.limit && [" ", h("b", {}, t("me.used_up"))], item.used >= item.limit && end && [" ", t("limits.next"), " ", jobLink({ id: end.job_id }), " ", time(end.date)]);
}

function budget(item) {
  const used = item.counted === null ? "?" : tenth(item.counted / HOUR);
  return h("li", { key: `${item.project} ${item.period_start}` },
    h("bdi", {}, t("me.budget", { project: item.project, used, hours: tenth(item.resource_hours) })), `, ${period(item)} `, item.counted !== null && shareBar(item.counted / HOUR, item.resource_hours));
}

function changes({ job_advice: ofJobs, groups }) {
  const items = ofJobs.map((each) => h("li", { key: each.job_id }, jobLink({ id: each.job_id }), t("colon"), english(`${each.trouble} ${each.solution}`)));
  for (const group of groups) for (const advice of group.advice)
    items.push(h("li", { key: `${group.name} ${advice.code}` }, group.name ? h("b", {}, h("bdi", {}, group.name)) : t("me.unnamed"), t("colon"), ADVICE[advice.code]?.(advice.values) ?? english(advice.sentence)));
  return items.length ? h("ul", {}, items) : h("p", { class: "empty" }, t("me.nothing_to_change"));
}

function card(key, title, ...content) {
  return h("section", { class: "card", key, id: key }, h("h2", {}, title), content);
}

function view(me) {
  const { numbers, limits, budgets, place, projects, groups } = me;
  const more = (shown, total, state) => total > shown && h("p", {}, h("a", { href: page("jobs", null, { user: me.user, state }) }, t("nodes.more", { n: total - shown })));
  return [
    h("h1", {}, t("me.title"), " ", h("bdi", {}, me.user)),
    card("running", t("me.running", { n: numbers.running }), table(t("me.running", { n: numbers.running }), RUNNING, me.running, (job) => job.id, t("jobs.none")), more(me.running.length, numbers.running, "running")),
    card("waiting", t("me.waiting", { n: numbers.waiting }), table(t("me.waiting", { n: numbers.waiting }), WAITING, me.waiting, (job) => job.id, t("jobs.none")), more(me.waiting.length, numbers.waiting, "waiting")),
    card("limits", t("limits.title"), limits.length + budgets.length ? h("ul", {}, limits.map(limit), budgets.map(budget)) : h("p", { class: "empty" }, t("limits.none")),
      place && h("p", {}, t("me.place", { before: number(place.before), n: place.others, project: place.project }))),
    card("month", t("me.month"), projects.length ? h("ul", {}, projects.map((each) => h("li", { key: each.project }, h("bdi", {}, each.project), t("colon"), `${tenth(each.hours)} ${t("limits.hours")}`))) : h("p", { class: "empty" }, t("usage.none"))),
    card("groups", t("me.groups"), table(t("me.groups"), GROUPS, groups, (group) => group.name ?? "", t("usage.no_ended")), me.groups_cut && h("p", { class: "faint" }, t("me.newest_only"))),
    card("changes", t("me.changes"), changes(me)),
    h("p", { key: "tokens" }, h("a", { href: page("tokens") }, t("tokens.title"))),
  ];
}

run({ load: (signal) => get("me", {}, signal), view, concerns: ({ name, data }) => name === "accounting" || (name === "state" && data.user === site.user) });
