// How long jobs waited by their sizes, and when those of a size start soonest.
import { h } from "./common/dom.js";
import { duration, number } from "./common/format.js";
import { table } from "./common/parts.js";
import { site } from "./common/site.js";
import { t } from "./common/words.js";

/** Days of a week; shades of the map, from which part of the longest wait on each begins. */
const WEEK = 7, SHADES = [0, 0.02, 0.1, 0.3, 0.6];
/** A Monday, to name the days of a week by. */
const MONDAY = Date.UTC(2024, 0, 1);

/** Show the answer of /v1/usage/waits; `chosen` is the place of a class of sizes, `choose(place)` takes another one. */
export function waitingTimes(record, chosen, choose) {
  const all = record.items.filter((each) => each.queue === null);
  if (!all.length) return h("p", { class: "empty", key: "waits" }, t("waits.none"));
  const size = all.some((each) => each.size === chosen) ? chosen : all.toSorted((a, b) => b.jobs - a.jobs)[0].size;
  return [
    table(t("waits.title"), columns(record.sizes), record.items, (each) => `${each.size} ${each.queue ?? ""}`, t("waits.none")),
    record.is_cut && h("p", { key: "cut", class: "faint" }, t("waits.cut", { n: number(all.reduce((sum, each) => sum + each.jobs, 0)) })),
    h("div", { key: "map", id: "soonest" }, h("h3", {}, t("waits.soonest")),
      h("p", { class: "filters" }, h("label", {}, h("span", {}, t("nodes.resources")),
        h("select", { name: "size", value: String(size), on: { change: (event) => choose(event.target.value) } }, all.map((each) => h("option", { key: each.size, value: String(each.size) }, named(record.sizes[each.size])))))),
      soonest(record, size)),
  ];
}

function columns(sizes) {
  return [
    { key: "size", label: t("nodes.resources"), kind: "number", cell: (each) => named(sizes[each.size]) },
    { key: "queue", label: t("queue.queue"), cell: (each) => (each.queue === null ? t("usage.all_queues") : h("bdi", {}, each.queue)) },
    { key: "jobs", label: t("jobs.title"), kind: "number", cell: (each) => number(each.jobs) },
    { key: "half", label: t("waits.half"), kind: "number", cell: (each) => duration(each.half) },
    { key: "most", label: t("waits.most"), kind: "number", cell: (each) => duration(each.most) },
  ];
}

/** Return a class of sizes as 17–64. */
function named({ from, to }) {
  return to === null ? `≥ ${number(from)}` : from === to ? number(from) : `${number(from)}–${number(to)}`;
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
