// How well somebody's last jobs fitted what they asked for, and what he could ask for instead.
import { get } from "./common/api.js";
import { h } from "./common/dom.js";
import { bytes, duration, number, percent } from "./common/format.js";
import { table } from "./common/parts.js";
import { t } from "./common/words.js";
import { SERIES } from "./gantt/colours.js";
import { enoughFor, written } from "./job-wishes.js";

/** Ended jobs that are looked at; bars of the histogram. */
const LOOKED_AT = 200, BARS = 10;
/** From this part of the walltime on a job has asked for about what it needs. */
const FITTING = 0.7;
const WIDTH = 1000, HEIGHT = 90, GAP = 6;
const GREY = [140, 140, 140];

/** Fetch the jobs of a user that ended last and ran. */
export async function endedOf(user, signal) {
  const { items } = await get("jobs", { user, state: "Terminated,Error", newest_first: true, details: true, limit: LOOKED_AT }, signal);
  return items.filter((job) => job.started && job.ended && job.walltime);
}

/** Show how much of their walltime jobs took, and for each name what it should ask for. */
export function accuracy(jobs) {
  const counts = Array.from({ length: BARS }, () => 0);
  for (const job of jobs) counts[Math.min(BARS - 1, Math.floor(BARS * shareOf(job)))]++;
  const words = counts.map((count, place) => `${place * 10}–${place * 10 + 10} %: ${count}`).join(", "), most = Math.max(1, ...counts);
  return [
    h("svg", { key: "histogram", class: "chart low", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": t("usage.histogram", { shares: words }) },
      counts.map((count, place) => h("rect", { key: place, class: "fill-used", x: (place * WIDTH) / BARS + GAP / 2, width: WIDTH / BARS - GAP, y: HEIGHT - (count * HEIGHT) / most, height: (count * HEIGHT) / most }, h("title", {}, `${place * 10}–${place * 10 + 10} %: ${count}`)))),
    h("p", { key: "ends", class: "faint ends" }, h("span", {}, "0 %"), h("span", { class: "middle" }, t("usage.of_walltime", { n: jobs.length })), h("span", {}, "100 %")),
    scatter(jobs),
    table(t("usage.accuracy"), COLUMNS, named(jobs), (each) => each.name, t("usage.no_ended")),
  ];
}

/** The drawing of one dot for each job: square, so that equal shares are equally far. */
const SIDE = 300, DOT = 4;

/** Show for each job how much of its walltime and of its cores' time it used; nothing as long as no job tells of its cores. */
function scatter(jobs) {
  const known = jobs.filter((job) => job.cpu_efficiency != null);
  if (!known.length) return null;
  const at = (share) => Math.max(0, Math.min(1, share)) * SIDE, names = [...new Set(named(known).map((each) => each.name))].slice(0, SERIES.length - 1);
  const colour = (job) => `rgb(${(SERIES[names.indexOf(job.name ?? job.command ?? "")] ?? GREY).join()})`;
  return h("figure", { key: "scatter", class: "scatter" },
    h("svg", { viewBox: `${-DOT} ${-DOT} ${SIDE + 2 * DOT} ${SIDE + 2 * DOT}`, role: "img", "aria-label": t("usage.scatter", { n: known.length }) },
      h("rect", { class: "frame", x: 0, y: 0, width: SIDE, height: SIDE }),
      h("line", { class: "rule", x1: at(FITTING), x2: at(FITTING), y1: 0, y2: SIDE }), h("line", { class: "rule", x1: 0, x2: SIDE, y1: SIDE - at(FITTING), y2: SIDE - at(FITTING) }),
      known.map((job) => h("circle", { key: job.id, cx: at(shareOf(job)), cy: SIDE - at(job.cpu_efficiency), r: DOT, fill: colour(job) },
        h("title", {}, `${job.id} ${job.name ?? ""}: ${percent(shareOf(job), 1)}, ${percent(job.cpu_efficiency, 1)}`)))),
    h("figcaption", { class: "faint" }, t("usage.scatter_axes"),
      h("ul", { class: "legend" }, names.map((name, place) => h("li", { class: "chip", key: name }, h("svg", { class: "swatch", viewBox: "0 0 1 1", "aria-hidden": "true" }, h("rect", { width: 1, height: 1, fill: `rgb(${SERIES[place].join()})` })), h("bdi", {}, ` ${name || "–"}`))))));
}

function shareOf(job) {
  return (job.ended - job.started) / job.walltime;
}

/** Return what the jobs of each name took, those with the most jobs first. */
function named(jobs) {
  const found = new Map();
  for (const job of jobs) found.set(job.name ?? job.command ?? "", [...(found.get(job.name ?? job.command ?? "") ?? []), job]);
  return [...found].map(([name, all]) => summary(name, all)).sort((a, b) => b.jobs - a.jobs);
}

function summary(name, all) {
  const took = Math.max(...all.map((job) => job.ended - job.started)), asked = Math.max(...all.map((job) => job.walltime));
  const known = all.filter((job) => job.cpu_efficiency != null), memory = Math.max(0, ...all.map((job) => job.max_rss ?? 0));
  const enough = enoughFor(took);
  return {
    name, jobs: all.length, took, asked, share: all.reduce((sum, job) => sum + shareOf(job), 0) / all.length, memory,
    efficiency: known.length ? known.reduce((sum, job) => sum + job.cpu_efficiency, 0) / known.length : null,
    enough: took < FITTING * asked && enough < asked ? enough : null,
  };
}

const COLUMNS = [
  { key: "name", label: t("filter.name"), cell: (each) => h("bdi", {}, each.name || "–") },
  { key: "jobs", label: t("jobs.title"), kind: "number", cell: (each) => number(each.jobs) },
  { key: "took", label: t("usage.took"), kind: "number", cell: (each) => duration(each.took) },
  { key: "asked", label: t("job.walltime"), kind: "number", cell: (each) => duration(each.asked) },
  { key: "share", label: t("usage.ratio"), kind: "number", cell: (each) => percent(each.share, 1) },
  { key: "cpu", label: t("usage.cpu"), kind: "number", cell: (each) => (each.efficiency == null ? "–" : percent(each.efficiency, 1)) },
  { key: "memory", label: t("usage.memory"), kind: "number", cell: (each) => (each.memory ? bytes(each.memory) : "–") },
  { key: "advice", label: t("usage.advice"), cell: (each) => (each.enough ? t("usage.ask_for", { walltime: written(each.enough) }) : "–") },
];
