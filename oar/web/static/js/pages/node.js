// What happened to a node, and what runs there.
import { Acts, reasonField } from "../acts.js";
import { get, patch } from "../common/api.js";
import { h } from "../common/dom.js";
import { duration, naturally, time } from "../common/format.js";
import { now, page, site } from "../common/site.js";
import { conditionBar, counted, eventGroups, eventJobs, eventSentence, jobLink, jobState, quoted, resourceState, shareBar, stateChip, table } from "../common/parts.js";
import { run } from "../common/page.js";
import { t } from "../common/words.js";
import { idsOf, keyOf, numbered } from "../job-rows.js";
import { commandLine } from "../reservation-fields.js";
import { strip, stripOf } from "../small-gantt.js";

/** Seconds before and after now of which the page tells what was and will be on the node. */
const REACH = 12 * 3600;
/** Jobs that are over of which it tells. */
const MOST_PAST = 20;
const name = decodeURIComponent(location.pathname.split("/").pop());

async function load(signal) {
  const path = `nodes/${encodeURIComponent(name)}`;
  const [node, jobs, history, near] = await Promise.all([
    get(path, {}, signal), get("jobs", { node: name, fold: true, details: true, limit: 100 }, signal), get(`${path}/history`, {}, signal),
    stripOf([name], now() - REACH, now() + REACH, signal),
  ]);
  return { node, jobs: jobs.items, history, near };
}

function view({ node, jobs, history, near }) {
  document.title = `${node.name} · ${site.name}`;
  const text = counted(node).join(" · ");
  return [
    h("h1", {}, h("bdi", {}, node.name)),
    h("p", { class: "lead" }, text, since(history, "state", (value) => value !== "Alive"), node.drain && [" · ", h("b", { class: "bad" }, t("node.drains")), since(history, "drain", (value) => value === "YES")], node.reason && [t("colon"), h("bdi", { class: "reason" }, node.reason)],
      " · ", h("a", { href: page("gantt", null, { node: node.name }) }, t("ar.in_gantt"))),
    conditionBar(node, node.total),
    h("section", { class: "card", key: "jobs" }, h("h2", {}, t("node.now")), table(t("node.now"), JOBS, jobs.filter((job) => job.started), keyOf, t("node.idle"))),
    nodeActs(node, jobs, history),
    around(near),
    past(history),
    h("section", { class: "card", key: "events" }, h("h2", {}, t("events.title"), " ", h("a", { class: "more", href: page("events", null, { node: name }) }, t("dashboard.all"))),
      table(t("events.title"), EVENTS, eventGroups(node.events.toReversed()), (event) => event.id, t("events.none"))),
    resources(node.resources),
    common(node.resources),
  ];
}

/** Tell since when the node is in a state in which it runs no jobs, if it is in one. */
function since({ items }, attribute, isLost) {
  const begun = items.find((each) => each.attribute === attribute && each.to === null && isLost(each.value))?.from;
  return begun && [" ", t("node.since"), " ", time(begun)];
}

/** Show what was on the node in the last hours, and what will be: small, and as tables. */
function around(near) {
  const planned = near.jobs.filter((job) => job.is_planned), over = near.jobs.filter((job) => job.is_over).reverse();
  return h("section", { class: "card", key: "near" }, h("h2", {}, t("node.near")), strip(near),
    h("h3", {}, t("node.next")), table(t("node.next"), NEAR, planned, (job) => job.id, t("node.nothing_planned")),
    h("h3", {}, t("node.past")), table(t("node.past"), NEAR, over.slice(0, MOST_PAST), (job) => job.id, t("node.nothing_past")),
    over.length > MOST_PAST && h("p", { class: "faint" }, t("nodes.more", { n: over.length - MOST_PAST })));
}

const NEAR = [
  { key: "job", label: t("job.job"), cell: jobLink },
  { key: "user", label: t("job.user"), cell: (job) => h("bdi", {}, job.user) },
  { key: "from", label: t("job.from"), cell: (job) => time(job.start) },
  { key: "until", label: t("job.until"), cell: (job) => time(job.end) },
  { key: "state", label: t("job.state"), cell: jobState },
];

/** Show for how much of the last days the node could be used, and when it could not. */
function past({ items, seconds }) {
  const all = Object.values(seconds).reduce((sum, each) => sum + each, 0);
  const lost = items.filter((each) => each.attribute === "state" ? each.value !== "Alive" : ["YES", "on"].includes(each.value)).reverse();
  return h("section", { class: "card", key: "history" }, h("h2", {}, t("node.history")),
    all > 0 && h("p", {}, shareBar(seconds.Alive ?? 0, all), " ", resourceState("Alive")),
    table(t("node.history"), PAST, lost, (each) => `${each.attribute} ${each.value} ${each.from} ${each.to} ${each.resources[0]}`, t("node.never")));
}

/** What else takes a node away than its state. */
const WITHOUT_JOBS = { drain: t("condition.draining"), maintenance: t("node.maintenance") };
const PAST = [
  { key: "value", label: t("job.state"), cell: (each) => (each.attribute === "state" ? resourceState(each.value) : WITHOUT_JOBS[each.attribute] ?? each.attribute) },
  { key: "from", label: t("job.from"), cell: (each) => time(each.from) },
  { key: "duration", label: t("job.duration"), kind: "number", cell: (each) => duration((each.to ?? now()) - each.from) },
  { key: "resources", label: t("node.resources"), kind: "number", cell: (each) => each.resources.length },
];

const acts = new Acts(() => actions.show(), () => (acts.told.isBad || (reason = ""), actions.refresh())); // who insists gives the same reason
let reason = "";

/** Show administrators what can be done with the node; what ends its jobs is asked. */
function nodeActs(node, jobs, history) {
  if (!site.administers) return null;
  const running = jobs.filter((job) => job.started).flatMap(idsOf).join(", ");
  const ending = running ? t("node.ends", { jobs: running }) : t("node.ends_none");
  const change = (key, label, what, question) => ({ key, label, question, isForcible: true, run: (force) => patch("resources", { nodes: [name], ...what(), force }) });
  const isMaintained = history.items.some((each) => each.attribute === "maintenance" && each.to === null && each.value === "on");
  const isIn = (state) => node.resources.every((resource) => resource.state === state);
  return [h("div", { class: "filters", key: "why" }, reasonField(reason, (text) => (reason = text))), acts.view([
    node.drain ? change("undrain", t("node.undrain"), () => ({ drain: false })) : change("drain", t("node.drain"), () => ({ drain: true, reason })),
    !isIn("Alive") && change("alive", t("node.alive"), () => ({ state: "Alive" })),
    !isIn("Absent") && change("absent", t("node.absent"), () => ({ state: "Absent" }), ending),
    isMaintained ? change("end", t("node.maintenance_end"), () => ({ maintenance: false })) : change("maintenance", t("node.maintenance"), () => ({ maintenance: true, reason }), ending),
  ].filter(Boolean)), commands(node)];
}

/** Show the commands that do the same, for who works on a terminal. */
function commands({ name: host, drain }) {
  const all = ["-s Alive", drain ? "--drain off" : "--drain on", "--maintenance on", "--maintenance off"];
  return h("details", { key: "commands" }, h("summary", {}, t("node.commands")), all.map((options) => commandLine(`oarnodesetting -h ${quoted(host)} ${options}`, options)));
}

const JOBS = [
  { key: "job", label: t("job.job"), cell: (job) => numbered(job, { node: name }) },
  { key: "user", label: t("job.user"), cell: (job) => h("bdi", {}, job.user) },
  { key: "state", label: t("job.state"), cell: (job) => stateChip(job.state) },
  { key: "since", label: t("job.duration"), kind: "number", cell: (job) => duration(now() - job.started) },
  { key: "until", label: t("job.until"), cell: (job) => (job.walltime ? time(job.started + job.walltime) : null) },
];
const EVENTS = [
  { key: "date", label: t("event.date"), cell: (event) => time(event.date) },
  { key: "text", label: t("event.text"), kind: "text", cell: eventSentence },
  { key: "job", label: t("job.job"), cell: eventJobs },
];

/** Properties in which all resources agree stand once; the others in the table of resources. */
function agreed(resources) {
  const [first, ...others] = resources.map((resource) => resource.properties);
  return Object.entries(first ?? {}).filter(([key, value]) => others.every((other) => other[key] === value)).sort(([a], [b]) => naturally(a, b));
}

/** Properties that are dates, if they are none of the largest numbers, which mean none. */
const DATES = new Set(["available_upto", "last_available_upto"]), NEVER = 2_147_483_646;

function valueOf(key, value) {
  return DATES.has(key) && value > 0 && value < NEVER ? time(value) : h("bdi", {}, value);
}

function common(resources) {
  return h("dl", { class: "facts card", key: "properties" }, agreed(resources).map(([key, value]) => h("div", { key }, h("dt", {}, h("bdi", {}, key)), h("dd", {}, valueOf(key, value)))));
}

function resources(list) {
  const same = new Set(agreed(list).map(([key]) => key));
  const different = [...new Set(list.flatMap((resource) => Object.keys(resource.properties)))].filter((key) => !same.has(key) && key !== "resource_id");
  const columns = [
    { key: " id", label: t("node.id"), kind: "number", cell: (resource) => resource.id },
    { key: " state", label: t("job.state"), cell: (resource) => resourceState(resource.state) },
    { key: " jobs", label: t("jobs.title"), cell: (resource) => resource.jobs.map((job) => [jobLink({ id: job }), " "]) },
    ...different.map((key) => ({ key, label: key, cell: (resource) => h("bdi", {}, resource.properties[key]) })),
  ];
  return h("section", { class: "card", key: "resources" }, h("h2", {}, t("node.resources")), table(t("node.resources"), columns, list, (resource) => resource.id, t("nodes.none")));
}

const actions = run({ load, view, concerns: ({ name: kind, data }) => ["resources", "state", "gantt"].includes(kind) || (kind === "event" && data.nodes.includes(name)) });
