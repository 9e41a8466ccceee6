// The rules that limit a user, with what is used of them and what frees them.
import { h } from "./common/dom.js";
import { number, time } from "./common/format.js";
import { jobLink, shareBar, table } from "./common/parts.js";
import { t } from "./common/words.js";

const KINDS = { quota: t("limits.quota"), waiting: t("limits.waiting"), budget: t("limits.budget") };
/** What a limit counts. */
export const LIMIT_UNITS = { resources: t("limits.resources"), jobs: t("limits.jobs"), hours: t("limits.hours") };
const COLUMNS = [
  { key: "kind", label: t("limits.kind"), cell: (row) => KINDS[row.kind] },
  { key: "rule", label: t("limits.rule"), cell: (row) => h("code", {}, row.rule) },
  { key: "jobs", label: t("limits.counts"), cell: whose },
  { key: "used", label: t("limits.used"), kind: "number", cell: (row) => `${tenth(row.used)} ${LIMIT_UNITS[row.name]}` },
  { key: "limit", label: t("limits.limit"), kind: "number", cell: (row) => tenth(row.limit) },
  { key: "share", label: t("usage.share"), kind: "number", cell: (row) => shareBar(row.used, row.limit) },
  { key: "next", label: t("limits.next"), cell: freed },
];

/** Return a number with one digit behind the point. */
export function tenth(value) {
  return number(Math.round(10 * value) / 10);
}

function whose({ queue, project, type, user }) {
  const parts = [[t("queue.queue"), queue], [t("filter.project"), project], [t("limits.type"), type], [t("filter.user"), user]].filter(([, name]) => name !== null);
  return parts.length ? parts.map(([label, name], place) => [place ? ", " : "", `${label} `, h("bdi", {}, name)]) : t("limits.everybody");
}

/** Return whose jobs a rule counts besides those of its queue, null for those of everybody. */
export function limitScope(rule) {
  const others = { ...rule, queue: null };
  return others.project ?? others.type ?? others.user ? whose(others) : null;
}

function freed({ kind, next_end: end }) {
  if (kind === "waiting") return t("limits.when_started");
  if (kind === "budget") return end ? t("limits.used_up_on", { date: time(end) }) : null;
  return end && [jobLink({ id: end.job_id }), ` ${time(end.date)}`];
}

const NO_END = 2 ** 31 - 1;

/** Return the period of a budget as text. */
export function period({ period_start: start, period_end: end }) {
  return `${start ? time(start) : "…"} – ${end < NO_END ? time(end) : "…"}`;
}

function budgetRow(budget) {
  const amount = { name: "hours", used: budget.counted / 3600, limit: budget.resource_hours };
  return { ...amount, kind: "budget", rule: period(budget), queue: null, project: budget.project, type: null, user: null, next_end: budget.exhausted_on };
}

/** Show the rules and budgets that limit a user; `limits`: the answer of /v1/limits. */
export function userLimits({ rules, budgets }) {
  const rows = rules.flatMap((rule) => rule.measures.map((measure) => ({ ...rule, ...measure })));
  rows.push(...budgets.filter((budget) => budget.counted !== null).map(budgetRow));
  return table(t("limits.title"), COLUMNS, rows, (row) => [row.kind, row.rule, row.queue, row.project, row.type, row.name].join(" "), t("limits.none"));
}
