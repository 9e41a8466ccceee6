// Which advance reservations there are: a week of the calendar, and what is told of each.
import { change, parameters } from "../common/address.js";
import { get } from "../common/api.js";
import { h } from "../common/dom.js";
import { filters } from "../common/filters.js";
import { fullDate, offset, time } from "../common/format.js";
import { reservationLink, table } from "../common/parts.js";
import { run } from "../common/page.js";
import { now, page } from "../common/site.js";
import { t } from "../common/words.js";

const DAY = 86_400, WEEK = 7 * DAY;
/** The calendar in units of its drawing. */
const WIDTH = 700;
const STATES = { w: t("ar.waiting"), r: t("ar.running"), E: t("ar.error"), W: t("ar.warning"), d: t("ar.deleted"), x: t("ar.exited") };

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
  const { owner, view: kind } = parameters(), from = week();
  const period = kind === "all" ? { ended: true } : { from, to: from + WEEK, ended: true };
  const { items } = await get("reservations", { owner, ...period }, signal);
  return { items: items.sort((a, b) => a.start_time - b.start_time || a.id - b.id), from };
}

function view({ items, from }) {
  const isCalendar = parameters().view !== "all";
  return [
    h("h1", {}, t("ar.title"), " ", isCalendar && h("small", {}, `${fullDate(from).slice(0, 10)} – ${fullDate(from + WEEK - 1).slice(0, 10)}`)),
    filters([{ name: "owner", label: t("ar.owner") }, { name: "view", label: t("nodes.view"), options: [["", t("ar.calendar")], ["all", t("ar.list")]] }], parameters(), select),
    isCalendar && h("div", { class: "row", key: "tools" }, step("←", from - WEEK, t("ar.week_before")), step(t("ar.this_week"), ""), step("→", from + WEEK + DAY, t("ar.week_after"))),
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
  { key: "state", label: t("job.state"), cell: (each) => h("span", { class: "state" }, h("b", {}, each.state), ` ${STATES[each.state] ?? ""}`) },
  { key: "from", label: t("job.from"), cell: (each) => time(each.start_time) },
  { key: "until", label: t("job.until"), cell: (each) => time(each.end_time) },
  { key: "slots", label: t("ar.slots"), kind: "number", cell: (each) => each.resources.length },
  { key: "jobs", label: t("jobs.title"), kind: "number", cell: (each) => each.jobs.running.length + each.jobs.waiting.length },
];

/** Show where a reservation is in the week. */
function strip(from) {
  const days = [0, 1, 2, 3, 4, 5, 6].map((day) => from + day * DAY + DAY / 2);
  const x = (date) => (Math.max(0, Math.min(WEEK, date - from)) * WIDTH) / WEEK;
  const cell = (each) => h("svg", { class: "week", viewBox: `0 0 ${WIDTH} 24`, preserveAspectRatio: "none", "aria-hidden": "true" },
    days.map((day, place) => place > 0 && h("line", { key: day, class: "rule", x1: (place * WIDTH) / 7, x2: (place * WIDTH) / 7, y1: 0, y2: 24 })),
    h("rect", { class: each.missing.length ? "fill-suspected" : "fill-reserved", x: x(each.start_time), y: 4, width: Math.max(3, x(each.end_time) - x(each.start_time)), height: 16 }),
    h("line", { class: "present", x1: x(now()), x2: x(now()), y1: 0, y2: 24 }));
  return { key: "week", kind: "week", label: h("span", { class: "days" }, days.map((day) => h("span", { key: day }, new Intl.DateTimeFormat(document.documentElement.lang, { weekday: "short", day: "numeric", timeZone: "UTC" }).format((day + offset(day)) * 1000)))), cell };
}

function select(changes) {
  change(changes);
  actions.refresh();
}

const actions = run({ load, view, concerns: ({ name }) => ["reservations", "jobs", "state"].includes(name) });
