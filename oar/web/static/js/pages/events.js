// What has happened to jobs and nodes.
import { change, parameters } from "../common/address.js";
import { get } from "../common/api.js";
import { h } from "../common/dom.js";
import { time } from "../common/format.js";
import { eventGroups, eventJobs, eventSentence, nodeLinks, table } from "../common/parts.js";
import { filters } from "../common/filters.js";
import { run } from "../common/page.js";
import { t } from "../common/words.js";

const FIELDS = [
  { name: "job", label: t("job.job"), kind: "number" },
  { name: "node", label: t("node.node"), of: "nodes" },
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
  { key: "text", label: t("event.text"), kind: "text", cell: eventSentence },
  { key: "job", label: t("job.job"), cell: eventJobs },
  { key: "nodes", label: t("nodes.title"), cell: (event) => nodeLinks(event.nodes) },
  { key: "like", label: t("event.like"), cell: (event) => h("button", { type: "button", class: "link", "aria-label": t("event.only_like", { text: event.sentence }), on: { click: () => select({ type: event.type }) } }, t("event.show_like")) },
];

function view(events) {
  return [
    h("h1", {}, t("events.title")),
    filters(FIELDS, parameters(), select),
    table(t("events.title"), columns, eventGroups(events.items), (event) => event.id, FIELDS.some(({ name }) => parameters()[name]) ? t("events.none_like") : t("events.none")),
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
