// How is the cluster, and how are my jobs?
import { get } from "../common/api.js";
import { h } from "../common/dom.js";
import { bytes, duration, number, percent, time } from "../common/format.js";
import { now, page, site } from "../common/site.js";
import { conditionBar, eventGroups, eventJobs, eventSentence, jobLink, jobState, legend, nodeLink, nodeLinks, shareBar, table, waitsFor } from "../common/parts.js";
import { run } from "../common/page.js";
import { t } from "../common/words.js";
import { GroupTable } from "../group-table.js";
import { jobsIn, keyOf, numbered } from "../job-rows.js";
import { Occupancy } from "../occupancy.js";

const RUNNING = ["toLaunch", "Launching", "Running", "Suspended", "Resuming", "Finishing"];
const WAITING = ["Waiting", "Hold", "toAckReservation"];

/** Seconds after which the scheduler should have looked again while jobs wait. */
const SILENCE = 300;
/** Seconds of which ended jobs are listed, too. */
const LAST_DAY = 86_400;
/** Nodes of a warning that are named. */
const MOST_LOST = 4;
const occupancy = new Occupancy(() => actions.show());
const groups = new GroupTable(() => actions.show());

/** Load what is below the curve at once, so that nothing moves when the rest comes. */
async function load(signal) {
  occupancy.renew();
  const [record] = await Promise.all([get("dashboard", {}, signal), groups.renew()]);
  return record;
}

function view({ resources, capacity, queues, jobs, events, last_round: lastRound, lost_nodes: lost, full_disks: disks }) {
  return h("div", { class: "dashboard" },
    h("h1", {}, t("dashboard.title", { site: site.name })),
    h("section", { class: "card wide" }, headline(resources, capacity), conditionBar(resources, resources.total),
      legend(resources), occupancy.view()),
    warnings(resources, queues, lastRound, lost), shortages(disks), groups.view(),
    jobs && mineCard(jobs),
    h("section", { class: "card" }, h("h2", {}, t("queues.title")), queueTable(queues)),
    h("section", { class: "card" }, h("h2", {}, t("dashboard.lately"), " ", h("a", { class: "more", href: page("events") }, t("dashboard.all"))), eventList(events)));
}

/** What is counted, in words: so many of so many are free. */
const COUNTED = { nodes: (values) => t("dashboard.nodes_free", values), cores: (values) => t("dashboard.cores_free", values), gpus: (values) => t("dashboard.gpus_free", values) };

/** Show how much is free, in what people ask for; resources where they are no cores. */
function headline(numbers, capacity) {
  const kinds = Object.keys(COUNTED).filter((kind) => capacity[kind]);
  const up = numbers.total - numbers.absent - numbers.suspected - numbers.dead - numbers.standby;
  return h("div", { class: "figures" },
    kinds.map((kind) => figure(number(capacity[kind].free), COUNTED[kind]({ n: capacity[kind].free, total: number(capacity[kind].up) }))),
    !capacity.cores && figure(number(numbers.free), t("dashboard.resources_free", { n: numbers.free, total: number(up) })),
    figure(percent(numbers.used, numbers.total), t("dashboard.busy")));
}

function figure(value, label) {
  return h("p", { class: "figure" }, h("b", {}, value), " ", h("span", {}, label));
}

function warnings(numbers, queues, lastRound, lost) {
  const isWaiting = queues.some((queue) => queue.state === "Active" && queue.oldest_waiting && now() - queue.oldest_waiting > SILENCE);
  const stopped = queues.filter((queue) => queue.state !== "Active");
  return [
    isWaiting && now() - (lastRound ?? 0) > SILENCE && warning("round", lastRound ? t("dashboard.no_round", { time: duration(now() - lastRound) }) : t("dashboard.never"), page("queues")),
    numbers.suspected > 0 && warning("suspected", t("dashboard.suspected", { n: numbers.suspected }), page("nodes", null, { state: "suspected", view: "table" }), lostNodes(lost, "Suspected")),
    numbers.dead > 0 && warning("dead", t("dashboard.dead", { n: numbers.dead }), page("nodes", null, { state: "dead", view: "table" }), lostNodes(lost, "Dead")),
    ...stopped.map((queue) => warning(`queue ${queue.name}`, t("dashboard.stopped", { queue: queue.name }), page("queues"))),
  ];
}

/** Warn of disks that are nearly full, and of licences and the like of which none is free. */
function shortages(disks) {
  return [
    ...disks.map((disk) => warning(`disk ${disk.path}`, t("dashboard.disk", { path: disk.path, free: bytes(disk.free) }))),
    ...groups.empty().map((pool) => warning(`pool ${pool.value}`, [t("dashboard.pool", { type: pool.value }), pool.next_free && [" · ", t("groups.next"), " ", time(pool.next_free)]])),
  ];
}

/** Name the nodes that came into a state last, and since when they are in it. */
function lostNodes(lost, state) {
  const nodes = lost.filter((each) => each.state === state);
  return nodes.length > 0 && [t("colon"), nodes.slice(0, MOST_LOST).map(({ node, since }, place) => [place ? ", " : null, nodeLink(node), since && [" ", t("node.since"), " ", time(since)]]),
    nodes.length > MOST_LOST && ", …"];
}

function warning(key, text, href, more) {
  return h("p", { class: "notice wide", key }, h("span", { "aria-hidden": "true" }, "! "), href ? h("a", { href }, text) : h("span", {}, text), more);
}

function mineCard(jobs) {
  const more = jobs.total > jobsIn(jobs.items);
  const items = jobs.items.toSorted((one, other) => place(one) - place(other));
  const columns = [
    { key: "state", label: t("job.state"), cell: jobState },
    { key: "job", label: t("job.job"), cell: (job) => numbered(job) },
    { key: "progress", label: t("job.progress"), cell: progress },
    items.some((job) => job.nodes.length) && { key: "nodes", label: t("nodes.title"), cell: (job) => nodeLinks(job.nodes, 2) },
  ].filter(Boolean);
  return h("section", { class: "card" },
    h("h2", {}, t("dashboard.mine"), " ", h("a", { class: "more", href: page("jobs", null, { user: site.user }) }, more ? t("dashboard.all_n", { n: jobs.total }) : t("dashboard.all"))),
    table(t("dashboard.mine"), columns, items, keyOf, [t("dashboard.no_jobs"), " ", h("a", { href: page("submit") }, t("jobs.submit"))]),
    h("p", { class: "faint" }, h("a", { href: page("jobs", null, { user: site.user, from: Math.floor(now() - LAST_DAY) }) }, t("dashboard.last_day"))));
}

/** Return what puts jobs into an order: those that run, those that start soonest, the others. */
function place(job) {
  return job.started ? 0 : (job.outlook?.scheduled_start ?? Infinity);
}

/** Show how far a job is: of one that runs its time, of one that waits why and until when. */
function progress(job) {
  if (job.started && !job.ended && job.walltime) {
    const spent = now() - job.started;
    return [t("job.of", { spent: duration(spent), whole: duration(job.walltime) }), " ", shareBar(spent, job.walltime)];
  }
  if (!job.outlook) return null;
  return [job.outlook.scheduled_start ? [t("why.starts"), " ", time(job.outlook.scheduled_start), job.outlook.why && " · "] : null, waitsFor(job.outlook)];
}

function queueTable(queues) {
  const sum = (queue, states) => states.reduce((total, state) => total + (queue.jobs[state] ?? 0), 0);
  const columns = [
    { key: "name", label: t("queue.queue"), cell: (queue) => h("a", { href: page("jobs", null, { queue: queue.name }) }, queue.name) },
    { key: "running", label: t("queue.running"), kind: "number", cell: (queue) => number(sum(queue, RUNNING)) },
    { key: "waiting", label: t("queue.waiting"), kind: "number", cell: (queue) => number(sum(queue, WAITING)) },
    { key: "oldest", label: t("queue.oldest"), kind: "number", cell: (queue) => (queue.oldest_waiting ? duration(now() - queue.oldest_waiting) : "–") },
  ];
  return table(t("queues.title"), columns, queues, (queue) => queue.name, t("queues.none"));
}

function eventList(events) {
  if (!events.length) return h("p", { class: "empty" }, t("events.none"));
  return h("ul", { class: "plain" }, eventGroups(events).map((event) =>
    h("li", { key: event.id }, time(event.date), " ", eventSentence(event), " ", eventJobs(event), " ", nodeLinks(event.nodes, 2))));
}

const actions = run({ load, view, concerns: (message) => ["state", "event", "jobs", "resources", "queues", "gantt"].includes(message.name) });
