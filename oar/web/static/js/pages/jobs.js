// Which jobs there are, and why they wait.
import { change, parameters } from "../common/address.js";
import { get } from "../common/api.js";
import { csv } from "../csv.js";
import { h } from "../common/dom.js";
import { duration, naturally, number, time } from "../common/format.js";
import { filters } from "../common/filters.js";
import { now, page, site } from "../common/site.js";
import { copy, download, english, exitOf, jobState, nodeLinks, OUTCOME_WORDS, quoted, shareBar, STATE_WORDS, switched, table, waitsFor } from "../common/parts.js";
import { requestOf } from "../common/asked.js";
import { announce, run } from "../common/page.js";
import { t } from "../common/words.js";
import { jobsIn, keyOf, lastOf, numbered } from "../job-rows.js";
import { JobSelection } from "../job-selection.js";

/** Rows that are fetched at once. */
const PIECE = 200;
/** Rows that the page holds at most; the filters find the others. */
const MOST = 10_000;
const STATES = ["", "Running", "Waiting", "Hold", "Suspended", "Terminated", "Error", "all"];
const CHOICES = { "": t("states.live"), all: t("states.all"), ...STATE_WORDS };
const FIELDS = [
  { name: "state", label: t("filter.state"), options: STATES.map((state) => [state, CHOICES[state]]) },
  { name: "outcome", label: t("filter.outcome"), options: [["", t("outcome.any")], ...Object.entries(OUTCOME_WORDS)] },
  { name: "user", label: t("filter.user"), of: "users" },
  { name: "queue", label: t("filter.queue"), of: "queues" },
  { name: "project", label: t("filter.project"), of: "projects" },
  { name: "type", label: t("filter.type"), of: "types" },
  { name: "node", label: t("filter.node"), of: "nodes" },
  { name: "q", label: t("filter.q") },
  { name: "name", label: t("filter.name"), isRare: true },
  { name: "array", label: t("array.array"), kind: "number", isRare: true },
  { name: "from", label: t("filter.from"), kind: "date", isRare: true },
  { name: "to", label: t("filter.to"), kind: "date", isRare: true },
];
const NAMES = FIELDS.map((field) => field.name);

/** Columns; those with `by` can be sorted by what it returns of a job. */
const COLUMNS = [
  { key: "job", label: t("job.job"), cell: (job) => numbered(job, asked()), by: (job) => job.id },
  { key: "user", label: t("job.user"), cell: (job) => h("bdi", {}, job.user), by: (job) => job.user },
  { key: "project", label: t("job.project"), cell: (job) => h("bdi", {}, job.project), by: (job) => job.project },
  { key: "queue", label: t("job.queue"), cell: (job) => job.queue, by: (job) => job.queue },
  { key: "state", label: t("job.state"), cell: jobState, by: (job) => STATE_WORDS[job.state] },
  { key: "types", label: t("job.types"), cell: (job) => h("bdi", {}, job.types.join(", ")) },
  { key: "asked", label: t("job.asked"), kind: "text asked", cell: requestOf },
  { key: "walltime", label: t("job.walltime"), kind: "number", cell: (job) => duration(job.walltime), by: (job) => job.walltime },
  { key: "submitted", label: t("job.submitted"), cell: (job) => time(job.submitted), by: (job) => job.submitted },
  { key: "duration", label: t("jobs.duration"), kind: "number", cell: spent, by: lasted },
  { key: "start", label: t("job.start"), cell: (job) => time(startOf(job)), by: startOf },
  { key: "nodes", label: t("nodes.title"), kind: "text", cell: (job) => nodeLinks(job.nodes) },
  { key: "why", label: t("job.why"), kind: "text", cell: (job) => (job.outlook?.why ? waitsFor(job.outlook) : english(job.end?.sentence || (SUMMARY.test(job.message) ? "" : job.message))) },
];
/** What the message of a job says that has no trouble: its request in short, which stands in other columns. */
const SUMMARY = /^R=\d+,W=[^ ]*$/;
/** Columns on a small screen. */
const FEW = ["job", "state", "start", "why"], SMALL = matchMedia("(max-width: 640px)");
const USUAL = ["job", "user", "queue", "state", "asked", "duration", "start", "why"];

let pieces = 1;
let newest = null;
const selection = new JobSelection(() => actions.show(), () => actions.refresh());

function asked() {
  const given = parameters();
  return Object.fromEntries(NAMES.filter((name) => given[name]).map((name) => [name, given[name]]));
}

async function load(signal) {
  const rows = new Map(); // an array comes again if the first of its jobs has ended since the page before
  let after, total;
  for (let piece = 0; piece < pieces && after !== null; piece++) {
    const page = await get("jobs", { ...asked(), fold: !asked().array, details: true, outlook: true, newest_first: true, limit: PIECE, after, total: piece === 0 }, signal);
    for (const row of page.items) if (!rows.has(keyOf(row))) rows.set(keyOf(row), row);
    total ??= page.total;
    after = page.next;
  }
  const items = [...rows.values()];
  newest ??= Math.max(0, ...items.map(lastOf));
  return { items, next: after, total };
}

/** Return when a job started, else when it is to start. */
function startOf(job) {
  return job.started ?? job.outlook?.scheduled_start ?? job.planned;
}

/** Return how long a job waits, runs or ran. */
function lasted(job) {
  return (job.ended ?? now()) - (job.started ?? job.submitted);
}

function spent(job) {
  return [duration(lasted(job)), job.started && !job.ended && job.walltime && [" ", shareBar(lasted(job), job.walltime)]];
}

/** Return jobs in the order that the address asks for: by a column, upwards or (-) downwards; what has no value comes last. */
function sorted(items) {
  const { key, isDown } = order(), column = COLUMNS.find((each) => each.by && each.key === key);
  if (!column) return items;
  const compared = (one, other) => {
    const [a, b] = [column.by(one), column.by(other)];
    if (a == null || b == null) return (a == null) - (b == null);
    return (isDown ? -1 : 1) * (typeof a === "number" ? a - b : naturally(a, b));
  };
  return items.toSorted(compared);
}

function order() {
  const { sort = "" } = parameters();
  return { key: sort.replace(/^-/, ""), isDown: sort.startsWith("-") };
}

/** Let a column be sorted by a click on its head: upwards, downwards, then as jobs are listed. */
function sortable(column) {
  const { key, isDown } = order(), isSorted = key === column.key;
  if (!column.by) return column;
  const next = !isSorted ? column.key : isDown ? "" : `-${column.key}`;
  const label = h("button", { type: "button", class: "sort", on: { click: () => (change({ sort: next }), actions.show()) } },
    column.label, h("span", { "aria-hidden": "true" }, isSorted ? (isDown ? " ↓" : " ↑") : ""));
  return { ...column, label, sorted: isSorted ? (isDown ? "descending" : "ascending") : null };
}

function usual() {
  return SMALL.matches ? FEW : USUAL;
}

function chosenColumns() {
  const chosen = parameters().columns?.split(",") ?? usual();
  return COLUMNS.filter((column) => chosen.includes(column.key));
}

function view({ items, next, total }) {
  const known = items.filter((job) => job.id <= newest), fresh = jobsIn(items) - jobsIn(known);
  return [
    h("h1", {}, t("jobs.title"), " ", h("small", {}, t("jobs.count", { n: total }))),
    mineOrAll(),
    filters(FIELDS, parameters(), select),
    h("div", { class: "row", key: "tools" }, columnChoice(), exports(), copyButton(),
      h("a", { key: "submit", href: page("submit") }, t("jobs.submit")),
      fresh > 0 && h("button", { type: "button", class: "fresh", key: "fresh", on: { click: showFresh } }, t("jobs.fresh", { n: fresh }))),
    selection.view(known),
    next !== null && order().key && h("p", { key: "part", class: "faint" }, t("jobs.sorted_part", { n: jobsIn(items) })),
    table(t("jobs.title"), [selection.column(known), ...chosenColumns().map(sortable)].filter(Boolean), order().key ? sorted(known) : known, keyOf, Object.keys(asked()).length ? t("jobs.none") : t("jobs.none_live")),
    next !== null && (items.length < MOST
      ? h("p", { key: "more" }, h("button", { type: "button", id: "more", on: { click: more } }, t("jobs.more", { n: jobsIn(items), total: number(total) })))
      : h("p", { key: "cut", class: "faint" }, t("jobs.cut", { n: number(jobsIn(items)), total: number(total) }))),
  ];
}

/** Switch between the jobs of who looks and all. */
function mineOrAll() {
  if (!site.user) return null;
  const { user } = parameters(), chosen = !user ? "all" : user === site.user || user === "me" ? "mine" : null;
  return switched(t("jobs.whose"), [["mine", t("jobs.mine")], ["all", t("jobs.of_all")]], chosen, (whose) => select({ user: whose === "mine" ? site.user : "" }));
}

function columnChoice() {
  const chosen = new Set(chosenColumns().map((column) => column.key));
  const toggle = (key) => {
    if (chosen.has(key)) chosen.delete(key);
    else chosen.add(key);
    const keys = COLUMNS.map((column) => column.key).filter((each) => chosen.has(each));
    change({ columns: keys.join() === usual().join() ? "" : keys.join() });
    actions.show();
  };
  return h("details", { class: "drop", key: "columns" }, h("summary", {}, t("jobs.columns")),
    h("div", {}, COLUMNS.map((column) => h("label", { key: column.key },
      h("input", { type: "checkbox", checked: chosen.has(column.key), disabled: column.key === "job", on: { change: () => toggle(column.key) } }), " ", column.label))));
}

function exports() {
  return h("details", { class: "drop", key: "exports" }, h("summary", {}, t("jobs.export")),
    h("div", {}, ["csv", "json", "ndjson"].map((kind) => h("button", { key: kind, type: "button", class: "link", on: { click: () => give(kind) } }, kind.toUpperCase()))));
}

function copyButton() {
  const text = command();
  return text && h("button", { type: "button", key: "copy", class: "quiet", title: text, on: { click: (event) => copy(text, event.currentTarget) } }, t("jobs.copy"));
}

/** Return the command that shows the same, null where there is none. */
function command() {
  const { state, user, queue, project, name, array, ...others } = asked();
  if (Object.keys(others).length || state === "all") return null;
  const options = [["-u", user === "me" ? site.user : user], ["-t", state], ["--queue", queue], ["--project", project], ["--name", name], ["-a", array]];
  return ["oarstat", ...options.filter(([, value]) => value).map(([option, value]) => `${option} ${quoted(value)}`)].join(" ");
}

async function give(kind) {
  const items = [];
  let after = null;
  do {
    const page = await get("jobs", { ...asked(), details: true, newest_first: true, limit: 1000, after });
    items.push(...page.items);
    after = page.next;
    announce(t("jobs.exported", { n: items.length }));
  } while (after !== null && items.length < 100_000);
  const lines = { json: () => JSON.stringify(items), ndjson: () => items.map((job) => JSON.stringify(job)).join("\n"), csv: () => csv(items.map(withExit), EXPORTED, ["submitted", "started", "ended"]) };
  download(`jobs.${kind}`, lines[kind](), kind === "csv" ? "text/csv" : "application/json");
}

const EXPORTED = ["id", "name", "user", "project", "queue", "state", "resources_asked", "walltime", "submitted", "started", "ended", "outcome", "exit_code", "signal", "message"];

/** Return a job with its exit code and the signal that ended it, in place of the wait status. */
function withExit(job) {
  if (job.exit_code == null) return job;
  const { code, signal } = exitOf(job.exit_code);
  return { ...job, exit_code: signal ? null : code, signal: signal || null };
}

function showFresh() {
  newest = Infinity;
  actions.show();
  newest = null;
  actions.refresh();
}

function more() {
  pieces += 1;
  actions.refresh();
}

function select(changes) {
  change(changes);
  pieces = 1;
  newest = null;
  actions.refresh();
}

const actions = run({ load, view, concerns: (message) => ["state", "jobs", "gantt"].includes(message.name) });
