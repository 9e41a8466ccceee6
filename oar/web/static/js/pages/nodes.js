// What each node is doing: a box for each resource, or a table of the nodes.
import { change, parameters } from "../common/address.js";
import { get } from "../common/api.js";
import { h } from "../common/dom.js";
import { naturally, number, time } from "../common/format.js";
import { filters } from "../common/filters.js";
import { CONDITIONS, CONDITION_WORDS, conditionBar, jobLink, legend, nodeLink, table } from "../common/parts.js";
import { run } from "../common/page.js";
import { t } from "../common/words.js";
import { Grid } from "../grid.js";
import { NodeSelection } from "../node-selection.js";
import { PropertyChooser } from "../property-chooser.js";

const COLOURS = { state: t("colour.state"), job: t("colour.job"), user: t("colour.user"), queue: t("colour.queue") };
/** Nodes that the table shows at most. */
const MOST = 1000;

function load(signal) {
  return get("grid", { group: parameters().group, props: chooser.chosen }, signal);
}

/** Return what boxes are coloured by if nothing is asked for: by jobs, as in Monika, where they are large. */
function usualColour() {
  return parameters().view === "monika" ? "job" : "state";
}

function fields(properties) {
  return [
    { name: "group", isView: true, label: t("nodes.group"), options: [["", t("nodes.no_group")], ...properties.map((each) => [each, each])] },
    { name: "color", isView: true, label: t("nodes.colour"), options: Object.entries(COLOURS).map(([key, word]) => [key === usualColour() ? "" : key, word]) },
    { name: "q", label: t("nodes.find"), of: "nodes" },
    { name: "view", isView: true, label: t("nodes.view"), options: [["", t("nodes.grid")], ["monika", t("nodes.as_monika")], ["table", t("nodes.table")]] },
  ];
}

/** Return the nodes that the address asks for, in groups, as people sort them. */
function chosen({ items, letters }) {
  const { q, state } = parameters();
  const letter = Object.entries(letters).find(([, condition]) => condition === state)?.[0];
  const words = (q ?? "").toLowerCase();
  const found = items.filter((node) => node.name.toLowerCase().includes(words) && (!letter || node.marks.includes(letter)));
  const groups = Map.groupBy ? Map.groupBy(found, (node) => node.group ?? "") : grouped(found);
  return [...groups].sort(([a], [b]) => naturally(a, b)).map(([name, nodes]) => ({ name, nodes: nodes.sort((a, b) => naturally(a.name, b.name)) }));
}

function grouped(nodes) {
  const groups = new Map();
  for (const node of nodes) groups.set(node.group ?? "", [...(groups.get(node.group ?? "") ?? []), node]);
  return groups;
}

function numbers(node, letters) {
  const counted = {};
  for (const mark of node.marks) counted[letters[mark]] = (counted[letters[mark]] ?? 0) + 1;
  return counted;
}

function view(record) {
  const groups = chosen(record), { state, view: kind } = parameters();
  const total = Object.values(record.total).reduce((sum, each) => sum + each, 0);
  const count = groups.reduce((sum, group) => sum + group.nodes.length, 0);
  return [
    h("h1", {}, t("nodes.title"), " ", h("small", {}, t("nodes.count", { n: count, resources: number(total) }))),
    filters(fields(record.properties), parameters(), select),
    chooser.view(),
    h("div", { key: "bar" }, conditionBar(record.total, total)),
    legend(record.total, state, (each) => select({ state: each })),
    selection.view(groups.flatMap((group) => group.nodes.map((node) => node.name))),
    !count ? h("p", { class: "empty", key: "none" }, t("nodes.none")) : kind === "table" ? groups.map((group) => tableOf(group, record)) : gridOf(groups, record),
  ];
}

function tableOf(group, record) {
  const columns = [
    selection.column(group.nodes.slice(0, MOST).map((node) => node.name)),
    { key: "node", label: t("node.node"), cell: (node) => nodeLink(node.name) },
    ...CONDITIONS.map((each) => ({ key: each, label: CONDITION_WORDS[each], kind: "number", cell: (node) => numbers(node, record.letters)[each] ?? h("span", { class: "none" }, "0") })),
    group.nodes.some((node) => record.since[node.name]) && { key: "since", label: t("node.since"), cell: (node) => record.since[node.name] && time(record.since[node.name]) },
    group.nodes.some((node) => record.reasons[node.name]) && { key: "reason", label: t("node.reason"), kind: "text", cell: (node) => h("bdi", {}, record.reasons[node.name]) },
    { key: "jobs", label: t("jobs.title"), kind: "text", cell: (node) => [...new Set(node.held.map(([, , job]) => job))].map((id) => [jobLink({ id }), " "]) },
  ].filter(Boolean);
  const title = group.name || t("nodes.title"), rest = group.nodes.length - MOST;
  return h("section", { key: `group ${group.name}` }, group.name && h("h2", {}, h("bdi", {}, group.name)),
    table(title, columns, group.nodes.slice(0, MOST), (node) => node.name, t("nodes.none")),
    rest > 0 && h("p", { class: "faint" }, t("nodes.more", { n: rest })));
}

const chooser = new PropertyChooser(() => actions.show(), () => actions.refresh());
const selection = new NodeSelection(() => actions.show(), () => actions.refresh());
const grid = new Grid(document.createElement("div"));
grid.element.addEventListener("oar:select", ({ detail }) => (selection.choose(detail.names, detail.isToggled), grid.tell()));

function gridOf(groups, record) {
  const jobs = new Map(record.jobs.map((job) => [job.id, job]));
  const { color, view: kind } = parameters(), isLarge = kind === "monika";
  grid.data = { groups, letters: record.letters, jobs, reasons: record.reasons, since: record.since, colour: color ?? usualColour(), isLarge, selection: selection.names };
  return h("div", { class: "grid", key: "grid", id: "grid" });
}

function shown() {
  const place = document.getElementById("grid");
  if (!place) return;
  if (grid.element.parentNode !== place) place.append(grid.element);
  grid.layOut();
}

function select(changes) {
  const old = parameters();
  const fresh = change(changes);
  if (old.group !== fresh.group) actions.refresh();
  else actions.show();
}

const actions = run({ load, view, shown, concerns: (message) => ["state", "resources"].includes(message.name) });
