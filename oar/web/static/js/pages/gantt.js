// Who was, is and will be where.
import { change, parameters } from "../common/address.js";
import { csv } from "../csv.js";
import { get } from "../common/api.js";
import { draw, h } from "../common/dom.js";
import { dateOf, duration, fullDate, number, time } from "../common/format.js";
import { filters } from "../common/filters.js";
import { now, page, site } from "../common/site.js";
import { download, jobLink, jobState, nodeLink, OUTCOME_WORDS, reservationLink, resourceState, STATE_WORDS, table } from "../common/parts.js";
import { announce, run } from "../common/page.js";
import { t } from "../common/words.js";
import { WAITED } from "../common/waited.js";
import { FIELDS, PAST, filter, levels, period, shape, supposed, unit } from "../gantt/asked.js";
import { engine, taken } from "../gantt/first.js";
import { PopUp } from "../gantt/popup.js";
import { View } from "../gantt/view.js";

const HOUR = 3600, DAY = 24 * HOUR;
/** Periods of the buttons. */
const PERIODS = [["12h", 12 * HOUR, t("gantt.half_day")], ["day", DAY, t("gantt.day")], ["week", 7 * DAY, t("gantt.week")], ["month", 30 * DAY, t("gantt.month")]];
const COLOURS = { job: t("colour.job"), ...(site.user ? { mine: t("colour.mine") } : {}), user: t("colour.user"), queue: t("colour.queue"), project: t("job.project"), state: t("colour.state"), outcome: t("filter.outcome"), types: t("job.types"), efficiency: t("gantt.efficiency") };
const STATES = ["Running", "Waiting", "Suspended", "Terminated", "Error"];
const LOOK = ["faint", "state-used", "state-reserved", "state-draining", "state-standby", "state-absent", "state-suspected", "state-dead", "job-waiting", "job-done"];
/** The words of states and outcomes in the language of the page. */
const WORDS_OF = { state: STATE_WORDS, outcome: OUTCOME_WORDS };
const UNITS = new Set(["network_address"]);
/** Milliseconds after the last move at which the address and the legend follow. */
const REST = 250;
/** Of periods up to this one as much before and after them is fetched, too: who moves on finds it there. */
const FETCHED_AHEAD = 7 * DAY;
/** Nodes of an area that are named in a request; of more only the number. */
const MOST_NAMED = 50;
/** Fields of a job for other programs. */
const EXPORTED = ["id", "name", "user", "project", "queue", "types", "state", "outcome", "kind", "resources", "walltime", "submitted", "begin", "end", "nodes"];

const figures = (globalThis.oarPerf = { complete: 0, frames: [] });
const frame = document.createElement("div"), canvas = document.createElement("canvas");
let chosen = null, selection = null, legend = null, listed = null, isCut = "", rowsShown = null, properties = [], isReady = false, timer = 0, follows = !parameters().from;

frame.className = "gantt-frame";
canvas.tabIndex = 0;
canvas.setAttribute("role", "application");
canvas.setAttribute("aria-label", t("gantt.label"));
canvas.setAttribute("aria-describedby", "gantt-keys");
frame.append(canvas);

const view = new View(canvas, engine, {
  moved, restyled: recoloured, home, folded,
  complete: completed,
  chosen: pointed,
  supposed: t("gantt.supposed"),
  opened: () => chosen?.job && location.assign(page("jobs", chosen.job.id)),
  walked, selected: (area) => ((selection = area), area && announce(extent(area)), actions.show()),
});
const card = new PopUp(frame);
const strip = document.createElement("div"); // it has its room at once: nothing jumps when the first view is drawn, and it comes
strip.className = "overview";
let overview = null;
const band = document.createElement("div");
band.className = "quota-band";
band.hidden = true;
let density = null, plans = null, quotas = null;
figures.frames = view.script;
engine.hear = (tile) => view.take(tile);
engine.tell("look", { look: look() });

/** All that is in sight is drawn. */
async function completed() {
  if (figures.complete) return;
  figures.complete = performance.now();
  frame.dataset.complete = "yes";
  const { Overview } = await import("../gantt/overview.js");
  overview = new Overview(strip, (from) => ((view.from = from), view.draw(), moved()));
  overview.show(view);
  const [{ FormerPlan }, { QuotaBand }] = await Promise.all([import("../gantt/former-plan.js"), import("../gantt/quota-band.js")]);
  plans = new FormerPlan(view, engine, () => actions.show());
  quotas = new QuotaBand(band, view);
  layers();
}

/** Ask for what lies over and below the jobs in sight. */
async function layers() {
  plans?.learn();
  quotas?.learn();
  if (isCut && !density) density = import("../gantt/density.js").then(({ Density }) => new Density(view, engine));
  (await density)?.show(isCut, levels());
}

/** Show what is pointed at; nothing: what was chosen last stays below the diagram. */
function pointed(hit, place) {
  card.show(hit, place && (() => place));
  if (hit) (chosen = hit), say();
}

async function recoloured() {
  engine.tell("look", { look: look() });
  (await density)?.recolour();
}

function look() {
  const style = getComputedStyle(document.documentElement);
  const colours = Object.fromEntries(LOOK.map((name) => [name.replace(/^(state|job)-/, ""), style.getPropertyValue(`--${name}`).trim()]));
  return { by: COLOURS[parameters().color] ? parameters().color : "job", isDark: style.getPropertyValue("--dark").trim() === "1", colours, user: site.user };
}

// -- what is loaded ------------------------------------------------------------------------------------------------

async function load() {
  const { rows, days, from, to, rest } = (await taken()) ?? (await news());
  resourcesChanged = false;
  rowsShown = levels();
  if (rows) properties = rows.properties;
  if (days) isCut = days.isCut ? days.since : "";
  return { rows, from, to, rest };
}

async function news() {
  const [from, to] = isReady ? [view.from, view.to] : period();
  const isNew = rowsShown !== levels();
  const [rows, , days] = await Promise.all([isNew || resourcesChanged ? engine.ask("rows", { levels: levels() }) : null, engine.ask("live"), engine.ask("period", { from, to })]);
  return { rows, days, from, to, rest: isReady ? null : Promise.resolve([true, days]) };
}

let resourcesChanged = false;
function concerns({ name }) {
  resourcesChanged ||= name === "resources";
  return ["state", "gantt", "jobs", "resources", "reservations"].includes(name);
}

function shown() {
  const place = document.getElementById("gantt");
  if (!place) return;
  if (frame.parentNode !== place) place.append(strip, band, frame);
  say();
}

/** Take what was loaded into the diagram, which stays while the page is drawn again. */
function take({ rows, from, to, rest }) {
  if (rows) {
    frame.style.setProperty("--rows", String(Math.max(4, rows.rows.length)));
    view.setRows(rows);
  }
  if (rest) return begin(from, to, rest);
  if (follows && from > 0) view.from = now() - PAST * (view.to - view.from);
  view.renew();
  settle();
}

/** Show where rows and dates are; the worker paints as soon as it has what is on them. */
async function begin(from, to, rest) {
  if (unit()) view.heighten(unit());
  view.show(from, to);
  if (Number(parameters().top) > 0) (view.top = Number(parameters().top)), view.fit();
  view.suppose(supposed());
  view.hurry();
  const [, days] = (await rest.catch(() => null)) ?? [];
  isReady = true;
  if (!days) return actions.refresh();
  isCut = days.isCut ? days.since : "";
  if (Number(parameters().job)) choose(Number(parameters().job));
  settle();
}

async function choose(id) {
  const found = await engine.ask("box", { id });
  if (!found.job) return;
  chosen = found;
  view.outline(found.boxes, true);
  say();
  requestAnimationFrame(() => setTimeout(beside)); // the diagram has its size then
  relate(found);
}

/** Show the card beside the job that is chosen. */
function beside() {
  card.show(chosen, () => view.outlined);
}

/** Show what a chosen job depends on and what depends on it, as far as it is among what was loaded. */
async function relate(found) {
  const { id } = found.job, around = await get(`jobs/${id}/dependencies`).catch(() => null);
  const near = (around?.dependencies ?? []).filter((each) => each.job === id || each.requires === id);
  const others = new Map(await Promise.all(near.map(async (each) => {
    const other = each.job === id ? each.requires : each.job;
    return [other, (await engine.ask("box", { id: other })).boxes[0]];
  })));
  if (chosen !== found || !near.length) return;
  const piece = (job) => (job === id ? found.boxes[0] : others.get(job));
  found.before = near.filter((each) => each.job === id).map((each) => each.requires);
  found.behind = near.filter((each) => each.requires === id).map((each) => each.job);
  view.connect(near.map((each) => [piece(each.requires), piece(each.job)]).filter(([from, to]) => from && to));
  say();
}

/** Name the jobs that a chosen one depends on, and those that depend on it. */
function related({ before = [], behind = [] }) {
  const links = (ids) => ids.map((id, place) => [place ? ", " : " ", jobLink({ id })]);
  return [before.length > 0 && [" · ", t("gantt.depends"), links(before)], behind.length > 0 && [" · ", t("gantt.awaited"), links(behind)]];
}

// -- what moves ----------------------------------------------------------------------------------------------------

function moved() {
  card.hide();
  overview?.show(view);
  follows = false;
  settle();
}

/** Some time after the last move: the address, the days that are missing, the legend. */
function settle() {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    if (!isReady) return;
    const given = follows ? { from: "", to: "" } : { from: Math.round(view.from), to: Math.round(view.to) };
    change({ ...given, unit: view.isFitted ? "" : view.unit.toFixed(2), top: view.top > 0 ? view.top.toFixed(1) : "" });
    const days = await engine.ask("period", { from: view.from, to: view.to, isMove: true }).catch(() => null);
    if (days?.fresh) view.renew();
    if (days) isCut = days.isCut ? days.since : "";
    if (view.to - view.from <= FETCHED_AHEAD) engine.tell("ahead", { from: view.from - (view.to - view.from), to: view.to + (view.to - view.from) });
    overview?.show(view);
    layers();
    legend = await engine.ask("count", sight()).catch(() => null);
    listed = parameters().view === "table" ? await engine.ask("list", sight()).catch(() => null) : null;
    actions.show();
  }, REST);
}

function sight() {
  return { from: view.from, to: view.to, top: view.top, bottom: view.bottom };
}

function home() {
  follows = true;
  span(view.to - view.from);
}

function span(seconds) {
  const from = follows ? now() - PAST * seconds : (view.from + view.to - seconds) / 2;
  view.show(from, from + seconds);
  settle();
}

function go(event) {
  const date = dateOf(`${event.target.value}T00:00`);
  if (!(date > 0)) return;
  follows = false;
  view.show(date, date + (view.to - view.from));
  settle();
}

async function folded(group) {
  const all = new Set(parameters().fold?.split(",").filter(Boolean));
  if (!all.delete(group)) all.add(group);
  change({ fold: [...all].join() });
  await reshape();
}

async function reshape() {
  const rows = await engine.ask("shape", shape());
  if (rows) view.setRows(rows);
  settle();
}

async function walked(step) {
  const found = await engine.ask("walk", { ...sight(), id: chosen?.job?.id ?? 0, step });
  if (!found) return;
  chosen = found;
  view.outline(found.boxes, true);
  announce(described(found.job));
  say();
  beside();
  relate(found);
}

async function select(changes) {
  const old = parameters(), fresh = change("view" in changes ? { ...changes, unit: "", top: "" } : changes);
  if (old.color !== fresh.color) engine.tell("look", { look: look() });
  engine.tell("filter", { filter: filter() });
  if ((old.node ?? "") !== (fresh.node ?? "")) await reshape();
  if ("view" in changes) unit() ? view.heighten(unit()) : view.stretch(null);
  if (rowsShown !== levels()) return actions.refresh();
  view.renew();
  settle();
  actions.show();
}

// -- what is shown -------------------------------------------------------------------------------------------------

function fields() {
  const { rows } = parameters();
  const choices = [["", t("gantt.nodes")], ["network_address,resource_id", t("gantt.resources")], ...properties.filter((each) => !UNITS.has(each)).map((each) => [`${each},network_address`, `${each}, ${t("gantt.nodes")}`])];
  return [
    { name: "rows", isView: true, label: t("gantt.rows"), options: rows && !choices.some(([key]) => key === rows) ? [...choices, [rows, rows]] : choices },
    { name: "color", isView: true, label: t("nodes.colour"), options: Object.entries(COLOURS).map(([key, word]) => [key === "job" ? "" : key, word]) },
    { name: "q", label: t("gantt.find") },
    { name: "node", label: t("nodes.find"), of: "nodes" },
    { name: "view", isView: true, label: t("nodes.view"), options: [["", t("gantt.diagram")], ["drawgantt", t("gantt.as_drawgantt")], ["table", t("nodes.table")]] },
    { name: "user", label: t("filter.user"), isRare: true, of: "users" },
    { name: "queue", label: t("filter.queue"), isRare: true, of: "queues" },
    { name: "project", label: t("filter.project"), isRare: true, of: "projects" },
    { name: "state", label: t("filter.state"), isRare: true, options: [["", t("states.all")], ...STATES.map((each) => [each, STATE_WORDS[each]])] },
    { name: "outcome", label: t("filter.outcome"), isRare: true, options: [["", t("outcome.any")], ...Object.entries(OUTCOME_WORDS)] },
    { name: "type", label: t("filter.type"), isRare: true, of: "types" },
  ];
}

function button(key, label, act, title) {
  return h("button", { type: "button", key, title, "aria-label": title, on: { click: act } }, label);
}

function tools() {
  const past = (step) => () => view.move(step, 0);
  return h("div", { class: "row", key: "tools" },
    button("back", "←", past(-0.5), t("gantt.back")), button("now", t("gantt.now"), home), button("on", "→", past(0.5), t("gantt.on")),
    PERIODS.map(([key, seconds, label]) => button(key, label, () => span(seconds))),
    button("in", "+", () => view.zoom(Math.SQRT2), t("gantt.zoom_in")), button("out", "−", () => view.zoom(Math.SQRT1_2), t("gantt.zoom_out")),
    button("tall", "↕ +", () => view.stretch(Math.SQRT2), t("gantt.taller")), button("low", "↕ −", () => view.stretch(Math.SQRT1_2), t("gantt.lower")),
    button("all", t("gantt.all_rows"), () => view.stretch(null)),
    h("label", { key: "date" }, h("span", { class: "faint" }, t("gantt.date"), " "), h("input", { type: "date", on: { change: go } })),
    h("details", { class: "drop", key: "exports" }, h("summary", {}, t("jobs.export")), h("div", {},
      h("button", { type: "button", class: "link", key: "png", on: { click: picture } }, "PNG"), h("button", { type: "button", class: "link", key: "svg", on: { click: vectors } }, "SVG"), h("button", { type: "button", class: "link", key: "csv", on: { click: give } }, "CSV"), h("button", { type: "button", class: "link", key: "print", on: { click: onPaper } }, t("gantt.print")))));
}

/** Let whatever waits have its turn. */
function turn() {
  const { port1, port2 } = new MessageChannel();
  return new Promise((go) => ((port1.onmessage = () => (port1.close(), go())), port2.postMessage(null)));
}

let before = null;
function layout(records) {
  if (records !== before) (before = records), turn().then(() => take(records)); // long work is done in pieces
  return [
    h("h1", {}, t("gantt.title"), " ", legend && h("small", {}, t("jobs.count", { n: legend.jobs }))),
    filters(fields(), parameters(), select), tools(), plans?.show(),
    isCut && h("p", { class: "notice", key: "cut" }, t("gantt.cut", { day: isCut })),
    h("div", { key: "gantt", id: "gantt" }),
    selectionTools(),
    h("div", { key: "says", id: "gantt-says", class: "says" }),
    legendOf(), key(), h("p", { class: "faint", key: "keys", id: "gantt-keys" }, t("gantt.keys")),
    plans?.list(), listed && listing(),
  ];
}

/** Say what is under the pointer, or what the keys have chosen. */
function say() {
  const place = document.getElementById("gantt-says");
  if (!place) return;
  const inside = (chosen?.reservations ?? []).map((each) => [" · ", t("ar.one"), " ", reservationLink(each), ` ${each.user} ${fullDate(each.from)} → ${fullDate(each.to)}`]);
  if (chosen?.job) draw(place, jobLink(chosen.job), " ", jobState(chosen.job), ` ${details(chosen.job)} `, chosen.row && ["· ", rowOf(chosen.row)], related(chosen), inside);
  else if (chosen?.row) draw(place, rowOf(chosen.row), inside, chosen.states.map((each) => [" · ", resourceState(each.state), `${t("colon")}${fullDate(each.begin)} → ${each.end < 2 ** 32 ? fullDate(each.end) : t("gantt.lasts")}`]));
  else draw(place, t("gantt.hint"));
}

function rowOf(row) {
  return [levels() === "network_address" ? nodeLink(row.label) : h("bdi", {}, [row.group, row.label].filter(Boolean).join(" ")), ` (${t("job.resources", { n: row.number })})`];
}

function details(job) {
  const end = job.phase ? job.begin + job.walltime : job.end;
  const words = [job.user, job.queue, job.project, job.types, job.kind === "INTERACTIVE" ? job.kind : "", t("job.resources", { n: job.resources }),
    `${fullDate(job.begin)} → ${job.walltime || !job.phase ? fullDate(end) : t("gantt.lasts")}${job.phase === 1 ? ` (${t("job.walltime")})` : job.phase === 2 ? ` (${t("job.planned")})` : ""}`,
    job.walltime ? `${t("job.walltime")} ${duration(job.walltime)}` : "", `${t("job.submitted")} ${fullDate(job.submitted)}`, job.reason && `${t("gantt.waits")} ${WAITED[job.reason] ?? job.reason}`];
  return words.filter(Boolean).join(" · ");
}

function described(job) {
  return `${job.id} ${job.name} ${OUTCOME_WORDS[job.outcome] ?? STATE_WORDS[job.state] ?? job.state} ${details(job)}`;
}

function legendOf() {
  if (!legend?.groups.length) return null;
  const colour = (fill) => (fill ? h("svg", { class: "swatch", viewBox: "0 0 1 1", "aria-hidden": "true" }, h("rect", { width: 1, height: 1, fill })) : null);
  const field = legend.name === "types" ? "type" : legend.name, isChosen = (group) => filter()[field] === group.told;
  return h("ul", { class: "legend", key: "legend" },
    legend.groups.map((group) => h("li", { key: group.told }, h("button", { type: "button", class: "chip", "aria-pressed": String(isChosen(group)), on: { click: () => select({ [field]: isChosen(group) ? "" : group.told }) } },
      colour(group.colour), h("bdi", {}, ` ${WORDS_OF[legend.name]?.[group.told] || group.told || "–"} `), h("b", {}, number(group.number))))),
    legend.rest > 0 && h("li", { key: " rest" }, t("nodes.more", { n: legend.rest })));
}

/** Tell from when until when an area goes, and of which rows it is. */
function extent({ from, to, top, bottom }) {
  const names = [view.rows[top]?.label, bottom - top > 1 && view.rows[bottom - 1]?.label].filter(Boolean).join(" – ");
  return `${fullDate(from).slice(0, 16)} → ${fullDate(to).slice(0, 16)} · ${t("gantt.rows_n", { n: bottom - top })} (${names})`;
}

/** Show what can be done with an area that was selected with Alt, or with Shift and the arrows. */
function selectionTools() {
  if (!selection) return null;
  const { from, to, top, bottom } = selection, close = () => view.select(null);
  const zoom = () => (view.show(from, to), close(), moved());
  return h("div", { class: "row notice", key: "selection", role: "group", "aria-label": t("gantt.selection") },
    h("span", {}, extent(selection)),
    h("button", { type: "button", key: "zoom", on: { click: zoom } }, t("gantt.zoom_in")),
    h("a", { key: "reserve", href: page("reservations", "new", asked(from, to, view.rows.slice(top, bottom))) }, t("gantt.reserve")),
    h("button", { type: "button", class: "quiet", key: "close", on: { click: close } }, t("gantt.unselect")));
}

/** Return what the form of a reservation begins with: whole minutes, the nodes of rows where rows are of nodes. */
function asked(from, to, rows) {
  const of = levels().split(",").indexOf("network_address"), depth = levels().split(",").length;
  const name = of === 0 && depth > 1 ? "group" : of === depth - 1 ? "label" : null;
  const nodes = name ? [...new Set(rows.map((row) => row[name].split(" / ").at(-1)))] : [];
  return { from: Math.floor(from / 60) * 60, to: Math.ceil(to / 60) * 60, nodes: nodes.length, hosts: nodes.length <= MOST_NAMED ? nodes.join() : "" };
}

/** Explain the patterns. */
function key() {
  const words = { plain: t("gantt.ran"), rest: t("gantt.rest"), plan: t("gantt.planned"), pause: t("gantt.suspended"), absent: t("condition.absent"), suspected: t("condition.suspected"), dead: t("condition.dead"), frame: t("gantt.reserved"), ...(isCut ? { dense: t("gantt.dense") } : {}) };
  return h("ul", { class: "legend", key: "patterns" }, Object.entries(words).map(([name, word]) => h("li", { key: name, class: "chip" }, h("i", { class: `pattern ${name}`, "aria-hidden": "true" }), ` ${word}`)));
}

const COLUMNS = [
  { key: "job", label: t("job.job"), cell: jobLink },
  { key: "user", label: t("job.user"), cell: (job) => h("bdi", {}, job.user) },
  { key: "queue", label: t("job.queue"), cell: (job) => job.queue },
  { key: "state", label: t("job.state"), cell: jobState },
  { key: "start", label: t("job.start"), cell: (job) => [time(job.begin), job.phase === 2 && ` (${t("job.planned")})`] },
  { key: "end", label: t("job.until"), cell: (job) => (job.end < 2 ** 32 ? time(job.end) : "–") },
  { key: "nodes", label: t("nodes.title"), kind: "text", cell: (job) => h("bdi", {}, job.nodes.slice(0, 8).join(", "), job.nodes.length > 8 && ` ${t("nodes.more", { n: job.nodes.length - 8 })}`) },
];

function listing() {
  const rest = listed.total - listed.items.length;
  return h("section", { key: "table" }, table(t("gantt.title"), COLUMNS, listed.items, (job) => job.id, t("jobs.none")), rest > 0 && h("p", { class: "faint" }, t("nodes.more", { n: rest })));
}

function picture() {
  canvas.toBlob(async (blob) => download("gantt.png", blob, "image/png"));
}

/** Return what is read with the colours of a light page, which are those for paper. */
function onLight(read) {
  const { dataset } = document.documentElement, { theme } = dataset;
  dataset.theme = "light";
  try {
    return read();
  } finally {
    if (theme) dataset.theme = theme;
    else delete dataset.theme;
    view.choose();
  }
}

/** Return the view as vectors, in colours for paper; null: it holds too much. */
async function drawn() {
  const { VectorPen } = await import("../gantt/vector-pen.js");
  return engine.ask("drawing", onLight(() => ({ sight: view.sight(new VectorPen()), look: look() })));
}

async function vectors() {
  const text = await drawn();
  if (text === null) announce(t("gantt.too_full"));
  else download("gantt.svg", text, "image/svg+xml");
}

/** Print the page with the diagram as vectors; what holds too much for that is printed as it is on the screen. */
async function onPaper() {
  const text = await drawn();
  frame.querySelector("img")?.remove();
  if (text !== null) {
    const image = new Image();
    image.alt = t("gantt.label");
    image.src = `data:image/svg+xml,${encodeURIComponent(text)}`;
    await image.decode();
    frame.append(image);
  }
  globalThis.print();
}
addEventListener("afterprint", () => frame.querySelector("img")?.remove());
addEventListener("keydown", (event) => {
  if (event.key !== "p" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  onPaper();
});

async function give() {
  const { items } = await engine.ask("list", sight());
  const rows = items.map((job) => ({ ...job, end: job.end < 2 ** 32 ? job.end : null, nodes: job.nodes.join(" ") }));
  download("gantt.csv", csv(rows, EXPORTED, ["submitted", "begin", "end"]), "text/csv");
}

const actions = run({ load, view: layout, shown, concerns });
