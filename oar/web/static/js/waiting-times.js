// How long jobs waited by their sizes, and when those of a size start soonest.
import { h } from "./common/dom.js";
import { duration, fullDate, number } from "./common/format.js";
import { table } from "./common/parts.js";
import { site } from "./common/site.js";
import { t } from "./common/words.js";
import { following } from "./pieces.js";

/** Days of a week; shades of the map, from which part of the longest wait on each begins. */
const WEEK = 7, SHADES = [0, 0.02, 0.1, 0.3, 0.6];
/** A Monday, to name the days of a week by. */
const MONDAY = Date.UTC(2024, 0, 1);

/** The drawing of the trend, in units of its own. */
const WIDTH = 1000, HEIGHT = 120;

/** Show the answer of /v1/usage/waits for `asked` = {from, to, bucket, size: the place of a class}; `choose(place)` takes another one. */
export function waitingTimes(record, asked, choose) {
  const all = record.items.filter((each) => each.queue === null);
  if (!all.length) return h("p", { class: "empty", key: "waits" }, t("waits.none"));
  const size = all.some((each) => each.size === asked.size) ? asked.size : all.toSorted((a, b) => b.jobs - a.jobs)[0].size;
  return [
    table(t("waits.title"), columns(record.sizes), record.items, (each) => `${each.size} ${each.queue ?? ""}`, t("waits.none")),
    record.is_cut && h("p", { key: "cut", class: "faint" }, t("waits.cut", { n: number(all.reduce((sum, each) => sum + each.jobs, 0)) })),
    h("p", { key: "size", class: "filters" }, h("label", {}, h("span", {}, t("nodes.resources")),
      h("select", { name: "size", value: String(size), on: { change: (event) => choose(event.target.value) } }, all.map((each) => h("option", { key: each.size, value: String(each.size) }, named(record.sizes[each.size])))))),
    h("div", { key: "trend", id: "trend" }, h("h3", {}, t("waits.trend")), trend(record, size, asked)),
    h("div", { key: "map", id: "soonest" }, h("h3", {}, t("waits.soonest")), soonest(record, size)),
  ];
}

const FIGURES = [
  { key: "jobs", label: t("jobs.title"), kind: "number", cell: (each) => number(each.jobs) },
  { key: "half", label: t("waits.half"), kind: "number", cell: (each) => duration(each.half) },
  { key: "most", label: t("waits.most"), kind: "number", cell: (each) => duration(each.most) },
];

function columns(sizes) {
  return [
    { key: "size", label: t("nodes.resources"), kind: "number", cell: (each) => named(sizes[each.size]) },
    { key: "queue", label: t("queue.queue"), cell: (each) => (each.queue === null ? t("usage.all_queues") : h("bdi", {}, each.queue)) },
    ...FIGURES,
  ];
}

/** Return a class of sizes as 17–64. */
function named({ from, to }) {
  return to === null ? `≥ ${number(from)}` : from === to ? number(from) : `${number(from)}–${number(to)}`;
}

/** Show how long half and nine of ten of the jobs had waited that started in each piece of the period; and as a table. */
function trend(record, size, { from, to, bucket }) {
  const here = record.trend.filter((each) => each.size === size), most = Math.max(60, ...here.map((each) => each.most));
  const x = (date) => ((Math.max(from, Math.min(to, date)) - from) * WIDTH) / (to - from), y = (wait) => HEIGHT - (wait * HEIGHT) / most;
  const day = (date) => fullDate(date).slice(0, 10);
  const steps = here.map((each) => {
    const left = x(each.from) + 0.5, right = Math.max(left + 1, x(following(each.from, bucket)) - 0.5);
    return h("g", { key: each.from }, h("title", {}, `${day(each.from)}: ${t("waits.half")} ${duration(each.half)}, ${t("waits.most")} ${duration(each.most)}`),
      h("rect", { class: "wait-most", x: left, width: right - left, y: y(each.most), height: HEIGHT - y(each.most) }),
      h("rect", { class: "fill-used", x: left, width: right - left, y: y(each.half), height: HEIGHT - y(each.half) }));
  });
  return [
    h("svg", { key: "steps", class: "chart waits", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": t("waits.chart", { wait: duration(most) }) }, steps),
    h("p", { key: "ends", class: "faint ends" }, h("span", {}, day(from)), h("span", { class: "middle" }, t("waits.highest", { wait: duration(most) })), h("span", {}, day(to - 1))),
    h("ul", { key: "legend", class: "legend" }, h("li", { class: "chip" }, h("i", { class: "pattern plain", "aria-hidden": "true" }), ` ${t("waits.half")}`), h("li", { class: "chip" }, h("i", { class: "pattern wait-most", "aria-hidden": "true" }), ` ${t("waits.most")}`)),
    h("details", { key: "table" }, h("summary", {}, t("waits.as_table")),
      table(t("waits.trend"), [{ key: "day", label: t("gantt.day"), cell: (each) => day(each.from) }, ...FIGURES], here.toReversed(), (each) => each.from, t("waits.none"))),
  ];
}

/** Show for each day of the week and each piece of it how long half of the jobs waited that were submitted then. */
function soonest({ hours, block_hours: length }, size) {
  const here = hours.filter((each) => each.size === size), blocks = 24 / length;
  const most = Math.max(1, ...here.map((each) => each.half)), found = new Map(here.map((each) => [each.block, each]));
  const best = here.reduce((least, each) => (each.half < least.half || (each.half === least.half && each.jobs > least.jobs) ? each : least));
  const shade = (wait) => SHADES.findLastIndex((least) => wait >= least * most);
  const clock = (place) => `${String(place * length).padStart(2, "0")}–${String((place + 1) * length).padStart(2, "0")}`;
  const cell = (block) => {
    const each = found.get(block);
    return h("td", { key: block, class: each ? `number heat-${shade(each.half)}` : "number none", title: each && t("jobs.count", { n: each.jobs }) }, each ? duration(each.half) : "–");
  };
  return [
    h("p", { key: "best", class: "sentence" }, t("waits.best", { day: dayName(Math.floor(best.block / blocks)), hours: clock(best.block % blocks), wait: duration(best.half) })),
    h("div", { key: "hours", class: "scroll", role: "region", tabindex: "0", "aria-label": t("waits.soonest") }, h("table", { class: "heat" },
      h("caption", { class: "unseen" }, t("waits.soonest")),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("gantt.day")), Array.from({ length: blocks }, (_, place) => h("th", { key: place, scope: "col", class: "number" }, clock(place))))),
      h("tbody", {}, Array.from({ length: WEEK }, (_, day) => h("tr", { key: day }, h("th", { scope: "row" }, dayName(day)), Array.from({ length: blocks }, (__, place) => cell(day * blocks + place))))))),
    h("p", { key: "clock", class: "faint" }, t("waits.clock")),
  ];
}

function dayName(day) {
  return new Intl.DateTimeFormat(site.language, { weekday: "short", timeZone: "UTC" }).format(MONDAY + day * 86_400_000);
}
