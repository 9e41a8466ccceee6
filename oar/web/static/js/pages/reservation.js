// An advance reservation: what it holds, who may use it, what runs in it, what happened to it.
import { Acts } from "../acts.js";
import { Alteration } from "../reservation-alteration.js";
import { get, remove } from "../common/api.js";
import { h } from "../common/dom.js";
import { duration, number, percent, time } from "../common/format.js";
import { jobLink, nodeLink, reservationState, table } from "../common/parts.js";
import { run } from "../common/page.js";
import { page, site } from "../common/site.js";
import { t } from "../common/words.js";

const id = Number(location.pathname.split("/").pop());

function load(signal) {
  return get(`reservations/${id}`, {}, signal);
}

function view(record) {
  document.title = `${record.id} ${record.ar_name} · ${site.name}`;
  const margin = Math.max(3600, record.duration / 4);
  return [
    h("h1", {}, h("b", {}, record.id), h("bdi", {}, ` ${record.ar_name}`), " ", reservationState(record.state)),
    h("p", { class: "lead" }, h("bdi", {}, record.owner), " · ", time(record.start_time), " → ", time(record.end_time), ` (${duration(record.duration)}) · `,
      h("a", { href: page("gantt", null, { from: Math.floor(record.start_time - margin), to: Math.ceil(record.end_time + margin) }) }, t("ar.in_gantt"))),
    record.reasons.map((reason, place) => h("p", { key: `reason ${place}`, class: "notice bad" }, h("bdi", {}, reason))),
    may(record) && acts.view([{ key: "delete", label: t("act.delete"), question: t("ar.delete_question", { n: record.jobs.running.length }), run: () => remove(`reservations/${id}`) }]),
    may(record) && alteration.view(record),
    facts(record), slots(record), jobs(record), bill(record), log(record),
  ];
}

const acts = new Acts(() => actions.show(), () => actions.refresh());
const alteration = new Alteration(() => actions.show(), () => actions.refresh());
const LIVE = ["w", "W", "r", "E"];

/** Whether who looks may change and delete it: it lasts, and is his, or he is an administrator. */
function may(record) {
  return LIVE.includes(record.state) && (site.administers || site.user === record.owner);
}

function facts(record) {
  const names = (list) => list.length > 0 && h("bdi", {}, list.join(", "));
  const list = [
    [t("ar.access"), names(record.acl_list)], [t("ar.no_access"), names(record.xacl_list)],
    [t("job.queue"), record.queue], [t("job.project"), record.project && h("bdi", {}, record.project)], [t("ar.account"), record.account && h("bdi", {}, record.account)],
    [t("job.asked"), h("bdi", {}, record.resource_list.map(({ name, value }) => `${name}=${value}`).join(", "))],
    [t("ar.missing"), record.missing.length > 0 && String(record.missing.length)],
    [t("ar.series"), record.series_id ? `${record.series_id} (${record.series_index})` : null],
    [t("job.submitted"), time(record.submission_time)], [t("job.ended"), record.ended ? time(record.ended) : null],
  ];
  return h("dl", { class: "facts card", key: "facts" }, list.filter(([, value]) => value).map(([label, value]) => h("div", { key: label }, h("dt", {}, label), h("dd", {}, value))));
}

function slots(record) {
  const columns = [
    { key: "host", label: t("node.node"), cell: (each) => nodeLink(each.host) },
    { key: "slots", label: t("ar.slots"), kind: "number", cell: (each) => each.slots },
  ];
  return h("section", { class: "card", key: "slots" }, h("h2", {}, t("job.resources", { n: record.resources.length })), table(t("node.resources"), columns, record.granted_slots, (each) => each.host, t("ar.no_slots")));
}

function jobs({ jobs: inside }) {
  const all = [...inside.running, ...inside.waiting];
  const list = (label, ids) => ids.length > 0 && h("p", { key: label }, `${label}: `, ids.map((job) => [jobLink({ id: job }), " "]));
  return h("section", { class: "card", key: "jobs" }, h("h2", {}, t("ar.jobs")), all.length ? [list(t("queue.running"), inside.running), list(t("queue.waiting"), inside.waiting)] : h("p", { class: "empty" }, t("ar.no_jobs")));
}

const HOURS = (name, label) => ({ key: name, label, kind: "number", cell: (row) => number(Math.round((10 * row[name]) / 3600) / 10) });
const BILL = [
  { key: "host", label: t("node.node"), cell: (row) => h("bdi", {}, row.host) },
  { key: "slots", label: t("ar.slots"), kind: "number", cell: (row) => row.slots },
  HOURS("reserved", t("ar.reserved_hours")), HOURS("used", t("usage.used_hours")), HOURS("unusable", t("ar.unusable_hours")),
  { key: "share", label: t("usage.share"), kind: "number", cell: (row) => (row.reserved ? percent(row.used, row.reserved) : "–") },
];

function bill({ usage }) {
  return usage.length > 0 && h("section", { class: "card", key: "bill" }, h("h2", {}, t("ar.bill")), table(t("ar.bill"), BILL, usage, (row) => `${row.queue} ${row.host}`, "–"));
}

const LOG = [
  { key: "date", label: t("event.date"), cell: (row) => time(row.date) },
  { key: "event", label: t("event.type"), cell: (row) => row.event },
  { key: "state", label: t("job.state"), cell: (row) => row.state && reservationState(row.state) },
  { key: "author", label: t("job.user"), cell: (row) => h("bdi", {}, row.author) },
  { key: "message", label: t("event.text"), kind: "text", cell: (row) => h("bdi", {}, row.message) },
];

function log({ log: rows }) {
  return h("section", { class: "card", key: "log" }, h("h2", {}, t("ar.log")), table(t("ar.log"), LOG, rows.map((row, place) => ({ ...row, place })), (row) => row.place, t("events.none")));
}

const actions = run({ load, view, concerns: ({ name }) => ["reservations", "jobs", "state"].includes(name) });
