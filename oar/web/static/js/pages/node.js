// What happened to a node, and what runs there.
import { Acts, reasonField } from "../acts.js";
import { get, patch } from "../common/api.js";
import { h } from "../common/dom.js";
import { duration, naturally, time } from "../common/format.js";
import { now, page, site } from "../common/site.js";
import { conditionBar, jobLink, shareBar, stateChip, table, CONDITIONS, CONDITION_WORDS } from "../common/parts.js";
import { run } from "../common/page.js";
import { t } from "../common/words.js";
import { strip, stripOf } from "../small-gantt.js";

/** Seconds before and after now of which the page tells what was and will be on the node. */
const REACH = 12 * 3600;
/** Jobs that are over of which it tells. */
const MOST_PAST = 20;
const name = decodeURIComponent(location.pathname.split("/").pop());

async function load(signal) {
  const path = `nodes/${encodeURIComponent(name)}`;
  const [node, jobs, history, near] = await Promise.all([
    get(path, {}, signal), get("jobs", { node: name, details: true, limit: 100 }, signal), get(`${path}/history`, {}, signal),
    stripOf([name], now() - REACH, now() + REACH, signal),
  ]);
  return { node, jobs: jobs.items, history, near };
}

function view({ node, jobs, history, near }) {
  document.title = `${node.name} · OAR`;
  const text = CONDITIONS.filter((each) => node[each]).map((each) => `${node[each]} ${CONDITION_WORDS[each]}`).join(" · ");
  return [
    h("h1", {}, h("bdi", {}, node.name)),
    h("p", { class: "lead" }, text, node.drain && [" · ", h("b", { class: "bad" }, t("node.drains"))], node.reason && [": ", h("bdi", { class: "reason" }, node.reason)],
      " · ", h("a", { href: page("gantt", null, { node: node.name }) }, t("ar.in_gantt"))),
    conditionBar(node, node.total),
    nodeActs(node, jobs),
    common(node.resources),
    around(near),
    h("section", { class: "card", key: "jobs" }, h("h2", {}, t("node.now")), table(t("node.now"), JOBS, jobs.filter((job) => job.started), (job) => job.id, t("node.idle"))),
    resources(node.resources),
    past(history),
    h("section", { class: "card", key: "events" }, h("h2", {}, t("events.title"), " ", h("a", { class: "more", href: page("events", null, { node: name }) }, t("dashboard.all"))),
      table(t("events.title"), EVENTS, node.events.toReversed(), (event) => event.id, t("events.none"))),
  ];
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
];

/** Show for how much of the last days the node could be used, and when it could not. */
function past({ items, seconds }) {
  const all = Object.values(seconds).reduce((sum, each) => sum + each, 0);
  const lost = items.filter((each) => each.attribute === "state" ? each.value !== "Alive" : ["YES", "on"].includes(each.value)).reverse();
  return h("section", { class: "card", key: "history" }, h("h2", {}, t("node.history")),
    all > 0 && h("p", {}, shareBar(seconds.Alive ?? 0, all), " Alive"),
    table(t("node.history"), PAST, lost, (each) => `${each.attribute} ${each.value} ${each.from} ${each.to} ${each.resources[0]}`, t("node.never")));
}

const PAST = [
  { key: "value", label: t("job.state"), cell: (each) => (each.attribute === "state" ? each.value : each.attribute) },
  { key: "from", label: t("job.from"), cell: (each) => time(each.from) },
  { key: "duration", label: t("job.duration"), kind: "number", cell: (each) => duration((each.to ?? now()) - each.from) },
  { key: "resources", label: t("node.resources"), kind: "number", cell: (each) => each.resources.length },
];

const acts = new Acts(() => actions.show(), () => (acts.told.isBad || (reason = ""), actions.refresh())); // who insists gives the same reason
let reason = "";

/** Show administrators what can be done with the node; what ends its jobs is asked. */
function nodeActs(node, jobs) {
  if (!site.administers) return null;
  const running = jobs.filter((job) => job.started).map((job) => job.id).join(", ");
  const ending = running ? t("node.ends", { jobs: running }) : t("node.ends_none");
  const change = (key, label, what, question) => ({ key, label, question, isForcible: true, run: (force) => patch("resources", { nodes: [name], ...what(), force }) });
  const isIn = (state) => node.resources.every((resource) => resource.state === state);
  return [h("div", { class: "filters", key: "why" }, reasonField(reason, (text) => (reason = text))), acts.view([
    node.drain ? change("undrain", t("node.undrain"), () => ({ drain: false })) : change("drain", t("node.drain"), () => ({ drain: true, reason })),
    !isIn("Alive") && change("alive", t("node.alive"), () => ({ state: "Alive" })),
    !isIn("Absent") && change("absent", t("node.absent"), () => ({ state: "Absent" }), ending),
    change("maintenance", t("node.maintenance"), () => ({ maintenance: true, reason }), ending),
    change("end", t("node.maintenance_end"), () => ({ maintenance: false })),
  ].filter(Boolean))];
}

const JOBS = [
  { key: "job", label: t("job.job"), cell: jobLink },
  { key: "user", label: t("job.user"), cell: (job) => h("bdi", {}, job.user) },
  { key: "state", label: t("job.state"), cell: (job) => stateChip(job.state) },
  { key: "since", label: t("job.duration"), kind: "number", cell: (job) => duration(now() - job.started) },
  { key: "until", label: t("job.until"), cell: (job) => (job.walltime ? time(job.started + job.walltime) : null) },
];
const EVENTS = [
  { key: "date", label: t("event.date"), cell: (event) => time(event.date) },
  { key: "type", label: t("event.type"), cell: (event) => event.type },
  { key: "job", label: t("job.job"), cell: (event) => event.job && jobLink({ id: event.job }) },
  { key: "text", label: t("event.text"), kind: "text", cell: (event) => h("bdi", {}, event.text) },
];

/** Properties in which all resources agree stand once; the others in the table of resources. */
function agreed(resources) {
  const [first, ...others] = resources.map((resource) => resource.properties);
  return Object.entries(first ?? {}).filter(([key, value]) => others.every((other) => other[key] === value)).sort(([a], [b]) => naturally(a, b));
}

function common(resources) {
  return h("dl", { class: "facts card", key: "properties" }, agreed(resources).map(([key, value]) => h("div", { key }, h("dt", {}, h("bdi", {}, key)), h("dd", {}, h("bdi", {}, value)))));
}

function resources(list) {
  const same = new Set(agreed(list).map(([key]) => key));
  const different = [...new Set(list.flatMap((resource) => Object.keys(resource.properties)))].filter((key) => !same.has(key) && key !== "resource_id");
  const columns = [
    { key: " id", label: t("node.id"), kind: "number", cell: (resource) => resource.id },
    { key: " state", label: t("job.state"), cell: (resource) => resource.state },
    { key: " jobs", label: t("jobs.title"), cell: (resource) => resource.jobs.map((job) => [jobLink({ id: job }), " "]) },
    ...different.map((key) => ({ key, label: key, cell: (resource) => h("bdi", {}, resource.properties[key]) })),
  ];
  return h("section", { class: "card", key: "resources" }, h("h2", {}, t("node.resources")), table(t("node.resources"), columns, list, (resource) => resource.id, t("nodes.none")));
}

const actions = run({ load, view, concerns: ({ name: kind, data }) => ["resources", "state", "gantt"].includes(kind) || (kind === "event" && data.nodes.includes(name)) });
