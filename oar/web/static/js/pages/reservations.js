// Which advance reservations there are: a week of the calendar, and what is told of each.
import { change, parameters } from "../common/address.js";
import { get } from "../common/api.js";
import { h } from "../common/dom.js";
import { filters } from "../common/filters.js";
import { fullDate, offset, time } from "../common/format.js";
import { reservationLink, reservationState, table } from "../common/parts.js";
import { run } from "../common/page.js";
import { now, page } from "../common/site.js";
import { t } from "../common/words.js";
import { box, HEIGHT, ReservationWeek, ruled, WIDTH } from "../reservation-week.js";

const DAY = 86_400, WEEK = 7 * DAY;

/** Return the Monday of a week, at midnight in the chosen zone. */
function monday(date) {
  const local = date + offset(date), day = Math.floor(local / DAY), begin = (day - ((day + 3) % 7)) * DAY;
  return begin - offset(begin - offset(date));
}

function week() {
  const asked = Number(parameters().week);
  return monday(asked > 0 ? asked : now());
}

async function load(signal) {
  const { owner, rows, view: kind } = parameters(), from = week();
  const period = kind === "all" ? { ended: true } : { from, to: from + WEEK, ended: true };
  const [{ items }, found] = await Promise.all([get("reservations", { owner, ...period }, signal), get("gantt/rows", { rows: rows || "type" }, signal)]);
  return { items: items.sort((a, b) => a.start_time - b.start_time || a.id - b.id), from, rows: rows && found, properties: found.properties };
}

function view({ items, from, rows, properties }) {
  const isCalendar = parameters().view !== "all";
  return [
    h("h1", {}, t("ar.title"), " ", isCalendar && h("small", {}, `${fullDate(from).slice(0, 10)} – ${fullDate(from + WEEK - 1).slice(0, 10)}`)),
    filters([{ name: "owner", label: t("ar.owner"), of: "users" }, { name: "view", isView: true, label: t("nodes.view"), options: [["", t("ar.calendar")], ["all", t("ar.list")]] },
      ...(isCalendar ? [{ name: "rows", isView: true, label: t("gantt.rows"), options: [["", t("ar.all_resources")], ["network_address", t("gantt.nodes")], ...properties.filter((each) => each !== "network_address").map((each) => [each, each])] }] : [])], parameters(), select),
    isCalendar && h("div", { class: "row", key: "tools" }, step("←", from - WEEK, t("ar.week_before")), step(t("ar.this_week"), ""), step("→", from + WEEK + DAY, t("ar.week_after"))),
    isCalendar && calendar.show(from, items, rows || null, parameters().rows, dayNames(from)),
    table(t("ar.title"), isCalendar ? [NAME, strip(from), ...OTHERS] : [NAME, ...OTHERS], items, (each) => `${each.id} ${each.submission_time}`, t("ar.none")),
    h("p", { key: "new" }, h("a", { href: page("reservations", "new") }, t("ar.new"))),
  ];
}

function step(label, date, title) {
  return h("button", { type: "button", key: label, title, "aria-label": title, on: { click: () => select({ week: date }) } }, label);
}

const NAME = { key: "name", label: t("ar.one"), cell: reservationLink };
const OTHERS = [
  { key: "owner", label: t("ar.owner"), cell: (each) => h("bdi", {}, each.owner) },
  { key: "state", label: t("job.state"), cell: (each) => reservationState(each.state) },
  { key: "from", label: t("job.from"), cell: (each) => time(each.start_time) },
  { key: "until", label: t("job.until"), cell: (each) => time(each.end_time) },
  { key: "slots", label: t("ar.slots"), kind: "number", cell: (each) => each.resources.length },
  { key: "jobs", label: t("jobs.title"), kind: "number", cell: (each) => each.jobs.running.length + each.jobs.waiting.length },
];

/** Show where a reservation is in the week. */
function strip(from) {
  const cell = (each) => h("svg", { class: "week", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    ruled(from), box(from, each.start_time, each.end_time, { class: each.missing.length ? "fill-suspected" : "fill-reserved" }));
  return { key: "week", kind: "week", label: dayNames(from), cell };
}

function dayNames(from) {
  const days = [0, 1, 2, 3, 4, 5, 6].map((day) => from + day * DAY + DAY / 2), names = new Intl.DateTimeFormat(document.documentElement.lang, { weekday: "short", day: "numeric", timeZone: "UTC" });
  return h("span", { class: "days" }, days.map((day) => h("span", { key: day }, names.format((day + offset(day)) * 1000))));
}

function select(changes) {
  change(changes);
  actions.refresh();
}

const calendar = new ReservationWeek(() => actions.show());
const actions = run({ load, view, concerns: ({ name }) => ["reservations", "jobs", "state"].includes(name) });
