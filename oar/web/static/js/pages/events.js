// What has happened to jobs and nodes.
import { change, parameters } from "../common/address.js";
import { get } from "../common/api.js";
import { h } from "../common/dom.js";
import { time } from "../common/format.js";
import { eventType, jobLink, nodeLinks, table } from "../common/parts.js";
import { filters } from "../common/filters.js";
import { run } from "../common/page.js";
import { t } from "../common/words.js";

const FIELDS = [
  { name: "job", label: t("job.job"), kind: "number" },
  { name: "node", label: t("node.node") },
  { name: "type", label: t("event.type") },
];
/** Events of a page, and at most; a click brings as many more. */
const PIECE = 100, MOST = 1000;
let shown = PIECE;

function load(signal) {
  const { job, node, type } = parameters();
  return get("event-log", { job, node, type, limit: Math.min(shown, MOST) }, signal);
}

const columns = [
  { key: "date", label: t("event.date"), cell: (event) => time(event.date) },
  { key: "type", label: t("event.type"), cell: (event) => h("button", { type: "button", class: "link", on: { click: () => select({ type: event.type }) } }, eventType(event.type)) },
  { key: "job", label: t("job.job"), cell: (event) => event.job && jobLink({ id: event.job }) },
  { key: "nodes", label: t("nodes.title"), cell: (event) => nodeLinks(event.nodes) },
  { key: "text", label: t("event.text"), kind: "text", cell: (event) => h("bdi", {}, event.text) },
];

function view(events) {
  return [
    h("h1", {}, t("events.title")),
    filters(FIELDS, parameters(), select),
    table(t("events.title"), columns, events.items, (event) => event.id, FIELDS.some(({ name }) => parameters()[name]) ? t("events.none_like") : t("events.none")),
    events.next && (shown < MOST
      ? h("p", { key: "more" }, h("button", { type: "button", on: { click: more } }, t("events.more")))
      : h("p", { key: "cut", class: "faint" }, t("events.cut", { n: events.items.length }))),
  ];
}

function more() {
  shown += PIECE;
  actions.refresh();
}

function select(changes) {
  change(changes);
  shown = PIECE;
  actions.refresh();
}

const actions = run({ load, view, concerns: (message) => message.name === "event" });
