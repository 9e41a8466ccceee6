// Who used what, and what comes of it.
import { change, parameters } from "../common/address.js";
import { get } from "../common/api.js";
import { csv } from "../csv.js";
import { h } from "../common/dom.js";
import { filters } from "../common/filters.js";
import { duration, fullDate, number, percent, time } from "../common/format.js";
import { refusal } from "../common/outcome.js";
import { download, resourceState, shareBar, switched, table } from "../common/parts.js";
import { run } from "../common/page.js";
import { now, site } from "../common/site.js";
import { t } from "../common/words.js";
import { SERIES } from "../gantt/colours.js";
import { accuracy, endedOf } from "../accuracy.js";
import { following } from "../pieces.js";
import { TERMS, fading, whoIsAhead } from "../fair-share.js";
import { lostNodes } from "../lost-nodes.js";
import { period, userLimits } from "../user-limits.js";
import { waitingTimes } from "../waiting-times.js";

const HOUR = 3600, DAY = 24 * HOUR;
const BY = { user: t("filter.user"), project: t("filter.project"), queue: t("filter.queue") };
const BUCKETS = { day: t("gantt.day"), week: t("gantt.week"), month: t("gantt.month") };
const PERIODS = { 7: t("gantt.week"), 30: t("gantt.month"), 90: t("usage.quarter"), 365: t("usage.year") };
const USUAL_DAYS = "30";
/** Groups that have a colour of their own; the chart in units of its drawing. */
const OWN = SERIES.length - 1, WIDTH = 1000, HEIGHT = 220;
const GREY = [140, 140, 140];

function asked() {
  const { by, bucket, days } = parameters();
  return { by: BY[by] ? by : "user", bucket: BUCKETS[bucket] ? bucket : "day", days: Number(PERIODS[days] ? days : USUAL_DAYS) };
}

async function load(signal) {
  const { by, bucket, days } = asked(), { who, project } = parameters(), user = who || site.user;
  const to = Math.ceil(now() / DAY) * DAY, from = to - days * DAY;
  const share = user ? get(`fairshare/${encodeURIComponent(user)}`, { project }, signal).catch((error) => ({ trouble: refusal(error) })) : null;
  const limited = user ? get("limits", { user }, signal).catch(() => null) : null;
  const [usage, waits, predictions, nodes, fair, ended, limits, projects] = await Promise.all([get("usage", { from, to, group: by, bucket }, signal), get("usage/waits", { from, to, bucket }, signal), get("predictions", {}, signal), get("usage/nodes", { from, to }, signal), share, user ? endedOf(user, signal) : null, limited, get("projects", {}, signal)]);
  return { from, to, by, bucket, usage, waits, predictions: predictions.items, nodes, fair, ended, limits, projects: projects.items.filter((project) => project.fair_share), user };
}

/** Whose consumption is shown: that of a user, "mine", or that of the site. */
function half(user) {
  const { of, by, bucket, days, size } = parameters();
  return ["mine", "site"].includes(of) ? of : user && !(by || bucket || days || size) ? "mine" : "site";
}

function view({ from, to, by, bucket, usage, waits, predictions, nodes, fair, ended, limits, projects, user }) {
  const isMine = half(user) === "mine";
  return [
    h("h1", {}, t("usage.title"), " ", isMine ? h("small", {}, h("bdi", {}, user)) : h("small", {}, `${fullDate(from).slice(0, 10)} – ${fullDate(to - 1).slice(0, 10)}`)),
    user && switched(t("usage.whose"), [["mine", user === site.user ? t("usage.mine") : user], ["site", t("usage.of_site")]], half(user), (of) => select({ of })),
    isMine ? ofUser({ fair, ended, limits, projects, user }) : ofSite({ from, to, by, bucket, usage, waits, predictions, nodes, projects }),
  ];
}

/** Show the limits of a user, the fair share, and how well the jobs were sized. */
function ofUser({ fair, ended, limits, projects, user }) {
  return [
    limits && h("section", { class: "card", key: "limits", id: "limits" }, h("h2", {}, t("limits.title"), " ", h("bdi", {}, user)), userLimits(limits)),
    shares(projects),
    fairShare(fair),
    ended && h("section", { class: "card", key: "accuracy" }, h("h2", {}, t("usage.accuracy"), " ", h("bdi", {}, user)), accuracy(ended)),
  ];
}

function shares(projects) {
  return projects.length > 0 && h("section", { class: "card", key: "projects", id: "projects" }, h("h2", {}, t("usage.projects")), table(t("usage.projects"), PROJECTS, projects, (each) => each.name, t("usage.none")));
}

/** Show who used the cluster, how long jobs waited, and what was lost. */
function ofSite({ from, to, by, bucket, usage, waits, predictions, nodes, projects }) {
  const groups = grouped(usage.items, by);
  return [
    filters([
      { name: "by", isView: true, label: t("usage.by"), options: Object.entries(BY).map(([key, word]) => [key === "user" ? "" : key, word]) },
      { name: "bucket", isView: true, label: t("usage.bucket"), options: Object.entries(BUCKETS).map(([key, word]) => [key === "day" ? "" : key, word]) },
      { name: "days", isView: true, label: t("usage.period"), options: Object.entries(PERIODS).map(([key, word]) => [key === USUAL_DAYS ? "" : key, word]) },
    ], parameters(), select),
    h("section", { class: "card", key: "chart" }, h("h2", {}, t("usage.over_time")), groups.length ? chart(usage, groups, by, bucket, from, to) : h("p", { key: "none", class: "empty" }, t("usage.none")), lost(usage)),
    h("section", { class: "card", key: "groups" }, h("h2", {}, BY[by], " ", h("button", { type: "button", class: "link more", on: { click: () => give(groups) } }, "CSV")),
      table(t("usage.title"), columns(by, usage.capacity), groups, (group) => group.name, t("usage.none"))),
    shares(projects),
    h("section", { class: "card", key: "waits", id: "waits" }, h("h2", {}, t("waits.title")), waitingTimes(waits, { from, to, bucket, size: Number(parameters().size ?? NaN) }, (size) => select({ size }))),
    h("section", { class: "card", key: "nodes", id: "lost" }, h("h2", {}, t("lost.title")), lostNodes(nodes)),
    h("section", { class: "card", key: "predictions" }, h("h2", {}, t("usage.predictions")), table(t("usage.predictions"), PREDICTIONS, predictions, (each) => each.queue ?? "", t("waits.none"))),
  ];
}

/** Return what each group used, the largest first, with its colour. */
function grouped(items, by) {
  const found = new Map();
  for (const item of items) {
    const group = found.get(item[by]) ?? { name: item[by], used: 0, asked: 0 };
    group.used += item.used;
    group.asked += item.asked;
    found.set(item[by], group);
  }
  const groups = [...found.values()].sort((a, b) => b.used - a.used || (a.name < b.name ? -1 : 1));
  groups.forEach((group, place) => (group.colour = groups.length <= OWN + 1 || place < OWN ? SERIES[place % SERIES.length] : GREY));
  return groups;
}

function swatch(colour) {
  return h("svg", { class: "swatch", viewBox: "0 0 1 1", "aria-hidden": "true" }, h("rect", { width: 1, height: 1, fill: `rgb(${colour.join()})` }));
}

/** Draw a bar for each piece of the period: what the groups used, from below; a line is what there was to use. */
function chart(usage, groups, by, bucket, from, to) {
  const columns = new Map();
  for (const item of usage.items) columns.set(item.from, [...(columns.get(item.from) ?? []), item]);
  const capacity = (begin) => (usage.capacity * (Math.min(to, following(begin, bucket)) - Math.max(from, begin))) / (to - from);
  const sum = (items, name) => items.reduce((total, item) => total + item[name], 0);
  const most = Math.max(1, ...[...columns].map(([begin, items]) => Math.max(capacity(begin), sum(items, "used"), sum(items, "asked"))), capacity(from));
  const x = (date) => ((Math.max(from, Math.min(to, date)) - from) * WIDTH) / (to - from), y = (amount) => HEIGHT - (amount * HEIGHT) / most;
  const order = new Map(groups.map((group, place) => [group.name, place]));
  const bars = [...columns].flatMap(([begin, items]) => {
    let below = 0;
    return items.sort((a, b) => order.get(a[by]) - order.get(b[by])).map((item) => {
      const low = y(below), high = y((below += item.used));
      return h("rect", { key: `${begin} ${item[by]}`, x: x(begin) + 0.5, y: high, width: Math.max(1, x(following(begin, bucket)) - x(begin) - 1), height: Math.max(0, low - high), fill: `rgb(${groups[order.get(item[by])].colour.join()})` });
    });
  });
  const lines = [...columns].flatMap(([begin, items]) => [
    h("line", { key: `asked ${begin}`, class: "asked", x1: x(begin), x2: x(following(begin, bucket)), y1: y(sum(items, "asked")), y2: y(sum(items, "asked")) }),
    h("line", { key: `capacity ${begin}`, class: "capacity", x1: x(begin), x2: x(following(begin, bucket)), y1: y(capacity(begin)), y2: y(capacity(begin)) }),
  ]);
  return [
    h("svg", { key: "chart", class: "chart", viewBox: `0 -4 ${WIDTH} ${HEIGHT + 8}`, preserveAspectRatio: "none", role: "img", "aria-label": t("usage.chart", { hours: number(Math.round(most / HOUR)) }) }, bars, lines),
    h("p", { key: "ends", class: "faint ends" }, h("span", {}, fullDate(from).slice(0, 10)), h("span", { class: "middle" }, t("usage.highest", { hours: number(Math.round(most / HOUR)) })), h("span", {}, fullDate(to - 1).slice(0, 10))),
    h("ul", { key: "legend", class: "legend" }, groups.slice(0, groups.length <= OWN + 1 ? groups.length : OWN).map((group) => h("li", { class: "chip", key: group.name }, swatch(group.colour), h("bdi", {}, ` ${group.name || "–"}`))),
      groups.length > OWN + 1 && h("li", { class: "chip", key: " others" }, swatch(GREY), ` ${t("usage.others")}`),
      h("li", { class: "chip", key: " asked" }, h("i", { class: "stroke asked", "aria-hidden": "true" }), ` ${t("usage.asked")}`),
      h("li", { class: "chip", key: " capacity" }, h("i", { class: "stroke capacity", "aria-hidden": "true" }), ` ${t("usage.capacity")}`)),
  ];
}

function lost({ capacity, unavailable }) {
  const parts = Object.entries(unavailable);
  return parts.length > 0 && h("p", { key: "lost" }, t("usage.lost"), " ", parts.map(([state, seconds], place) => [place ? ", " : "", resourceState(state), ` ${percent(seconds, capacity)}`]));
}

function hours(seconds) {
  return number(Math.round((10 * seconds) / HOUR) / 10);
}

function columns(by, capacity) {
  return [
    { key: "name", label: BY[by], cell: (group) => [swatch(group.colour), " ", h("bdi", {}, group.name || "–")] },
    { key: "used", label: t("usage.used_hours"), kind: "number", cell: (group) => hours(group.used) },
    { key: "asked", label: t("usage.asked_hours"), kind: "number", cell: (group) => hours(group.asked) },
    { key: "ratio", label: t("usage.ratio"), kind: "number", cell: (group) => (group.asked ? percent(group.used, group.asked) : "–") },
    { key: "share", label: t("usage.share"), kind: "number", cell: (group) => shareBar(group.used, capacity) },
  ];
}

const TERM_COLUMNS = [
  { key: "name", label: t("usage.term"), cell: (term) => TERMS[term.name] },
  { key: "used", label: t("usage.is"), kind: "number", cell: (term) => percent(term.used, 1) },
  { key: "target", label: t("usage.target"), kind: "number", cell: (term) => percent(term.target, 1) },
  { key: "weight", label: t("usage.weight"), kind: "number", cell: (term) => number(term.weight) },
  { key: "karma", label: t("usage.karma"), kind: "number", cell: (term) => term.karma.toFixed(2) },
];

/** Show why somebody's jobs are before or behind those of others. */
function fairShare(fair) {
  const { who, project } = parameters();
  return h("section", { class: "card", key: "fair", id: "fairshare" }, h("h2", {}, t("usage.fair")),
    filters([{ name: "who", isView: true, label: t("filter.user"), of: "users" }, { name: "project", isView: true, label: t("filter.project"), of: "projects" }], { who: who ?? site.user, project }, select),
    !fair ? h("p", { class: "faint" }, t("usage.fair_hint"))
      : fair.trouble ? h("p", { class: "bad" }, fair.trouble)
        : [h("p", { class: "sentence" }, t("usage.fair_sum", { user: fair.user, project: fair.project, karma: fair.karma.toFixed(2), window: duration(fair.window) })),
          table(t("usage.fair"), TERM_COLUMNS, fair.terms, (term) => term.name, t("usage.none")), h("p", { class: "faint" }, t("usage.fair_meaning")), fading(fair), whoIsAhead(fair)]);
}

const PROJECTS = [
  { key: "name", label: t("filter.project"), cell: (each) => h("bdi", {}, each.name) },
  { key: "parent", label: t("usage.part_of"), cell: (each) => h("bdi", {}, each.parent ?? "–") },
  { key: "shares", label: t("usage.shares"), kind: "number", cell: (each) => number(each.shares) },
  { key: "target", label: t("usage.target"), kind: "number", cell: (each) => percent(each.fair_share.target, 1) },
  { key: "effective", label: t("usage.is"), kind: "number", cell: (each) => (each.fair_share.used === null ? "–" : percent(each.fair_share.effective, 1)) },
  { key: "used", label: t("usage.used_hours"), kind: "number", cell: (each) => (each.fair_share.used === null ? "–" : hours(each.fair_share.used)) },
  { key: "budget", label: t("usage.budget"), cell: budgetsOf },
];

function budgetsOf({ budgets }) {
  const present = budgets.filter((budget) => budget.counted !== null);
  return present.length ? present.map((budget) => [shareBar(budget.counted, budget.resource_hours * HOUR), ` ${hours(budget.counted)} / ${number(budget.resource_hours)} ${t("limits.hours")}, ${period(budget)}`,
    budget.exhausted_on && `, ${t("limits.used_up_on", { date: time(budget.exhausted_on) })}`]) : "–";
}

const PREDICTIONS = [
  { key: "queue", label: t("queue.queue"), cell: (each) => each.queue ?? t("usage.all_queues") },
  { key: "jobs", label: t("jobs.title"), kind: "number", cell: (each) => number(each.jobs) },
  { key: "half", label: t("usage.half"), kind: "number", cell: (each) => duration(each.half) },
  { key: "most", label: t("usage.most"), kind: "number", cell: (each) => duration(each.most) },
  { key: "late", label: t("usage.late"), kind: "number", cell: (each) => percent(each.late, each.jobs) },
];

function give(groups) {
  const rows = groups.map(({ name, used, asked: wanted }) => ({ name, used_hours: (used / HOUR).toFixed(2), asked_hours: (wanted / HOUR).toFixed(2) }));
  download("usage.csv", csv(rows, ["name", "used_hours", "asked_hours"], []), "text/csv");
}

function select(changes) {
  change(changes);
  actions.refresh();
}

const actions = run({ load, view, concerns: ({ name }) => name === "accounting" });
