// What was planned once, over what came of it: a slider through the plans that are kept (SCHEDULER_LOG_DECISIONS).
import { get } from "../common/api.js";
import { h } from "../common/dom.js";
import { duration, fullDate, time } from "../common/format.js";
import { jobLink, table } from "../common/parts.js";
import { now } from "../common/site.js";
import { t } from "../common/words.js";
import { shortened } from "./view.js";

/** Seconds by which a start may differ from the planned one and is as planned. */
const TOLERANCE = 60;
/** Boxes that are drawn at most; those that are as wide have their words.  How far the jobs are covered, so that the plan is read. */
const MOST_DRAWN = 3000, NAMED = 44, VEIL = 0.6;
/** How each kind is drawn: its colour of the style sheet, its dashes, its name. */
const LOOKS = { kept: ["good", [7, 3], t("plan.kept")], late: ["bad", [2, 3], t("plan.late")], early: ["link", [10, 3, 2, 3], t("plan.early")], open: ["faint", [4, 4], t("plan.open")] };

export class FormerPlan {
  dates = [];
  date = 0;
  record = null;
  boxes = [];
  asked = "";

  /** `redraw` shows the page anew. */
  constructor(view, engine, redraw) {
    Object.assign(this, { view, engine, redraw });
    view.over.push(() => this.draw());
  }

  /** Ask which plans of the time in sight are kept. */
  async learn() {
    const { view } = this, from = Math.floor(view.from / 3600) * 3600, to = Math.ceil(Math.min(now() + 1, view.to) / 60) * 60, asked = `${from} ${to}`;
    if (asked === this.asked || to <= from) return;
    this.asked = asked;
    const { items } = await get("gantt/plans", { from, to }).catch(() => ({ items: [] }));
    if (asked !== this.asked) return;
    this.dates = items;
    this.redraw();
  }

  /** Show the plan of a date, 0: none. */
  async choose(date) {
    this.date = date;
    this.redraw();
    const record = date ? await get(`gantt/plans/${date}`).catch(() => null) : null;
    if (date !== this.date) return;
    this.record = record;
    await this.place();
    this.redraw();
  }

  /** Find where the jobs of the plan are among the rows. */
  async place() {
    const { record, view } = this, jobs = record?.items ?? [];
    const found = jobs.length ? ((await this.engine.ask("pieces", { sets: jobs.map((job) => job.resources) })) ?? []) : [];
    if (record !== this.record) return;
    this.rows = view.rows;
    this.boxes = jobs.flatMap((job, place) => (found[place] ?? []).map(([top, bottom]) => ({ job, top, bottom, kind: kindOf(job), words: `${job.id} ${job.started ? difference(job) : ""}`.trim() })));
    view.draw();
  }

  draw() {
    const { view, boxes } = this, { pen } = view;
    view.isNamed = !boxes.length;
    if (!boxes.length) return;
    if (this.rows !== view.rows) return void this.place();
    const style = getComputedStyle(document.documentElement);
    const colours = Object.fromEntries(Object.entries(LOOKS).map(([kind, [name]]) => [kind, style.getPropertyValue(`--${name}`).trim()]));
    pen.save();
    pen.globalAlpha = VEIL;
    pen.fillStyle = view.paint.card;
    pen.fillRect(view.left, view.y(view.top), view.width, view.height);
    pen.globalAlpha = 1;
    let drawn = 0;
    for (const { job, top, bottom, kind, words } of boxes) {
      if (job.start >= view.to || job.end <= view.from || top >= view.bottom || bottom <= view.top || drawn++ > MOST_DRAWN) continue;
      const x = view.x(job.start), wide = Math.max(2, view.x(job.end) - x), y = view.y(top), high = Math.max(2, view.y(bottom) - y);
      pen.setLineDash(LOOKS[kind][1]);
      pen.lineWidth = 2; // words have a rim of their own
      pen.strokeStyle = colours[kind];
      pen.strokeRect(x + 1, y + 1, wide - 2, Math.max(1, high - 2));
      const at = Math.max(view.left, x) + 4, room = Math.min(view.width, x + wide) - at - 2;
      if (room < NAMED || high < 11) continue;
      pen.setLineDash([]);
      pen.fillStyle = colours[kind];
      view.write(shortened(words, room), at, (Math.max(view.y(view.top), y) + Math.min(view.height, y + high)) / 2);
    }
    pen.restore();
  }

  /** Show the slider; nothing where no plan of the time in sight is kept. */
  show() {
    if (!this.dates.length && !this.date) return null;
    const { dates, date } = this, place = date ? Math.max(0, dates.findLastIndex((each) => each <= date)) : dates.length;
    const move = (event) => this.choose(dates[Number(event.target.value)] ?? 0), told = date ? fullDate(date).slice(0, 16) : t("plan.now");
    return h("div", { class: `row plan${date ? "" : " none"}`, key: "plan" },
      h("label", {}, t("plan.of"), " ", h("input", { type: "range", min: "0", max: String(dates.length), value: String(place), "aria-valuetext": told, on: { change: move } })),
      h("output", {}, told),
      date > 0 && h("button", { type: "button", key: "none", class: "quiet", on: { click: () => this.choose(0) } }, t("plan.now")),
      date > 0 && h("ul", { class: "legend", key: "kinds" }, Object.keys(LOOKS).map((kind) => h("li", { key: kind, class: "chip" }, h("i", { class: `pattern plan-${kind}`, "aria-hidden": "true" }), ` ${LOOKS[kind][2]} `, h("b", {}, this.count(kind))))),
      date > 0 && this.record?.is_cut && h("span", { class: "faint", key: "cut" }, t("gantt.first", { n: this.record.items.length })));
  }

  count(kind) {
    return String((this.record?.items ?? []).filter((job) => kindOf(job) === kind).length);
  }

  /** Show the plan as a table. */
  list() {
    if (!this.date || !this.record) return null;
    return h("details", { key: "former" }, h("summary", {}, t("plan.table")), table(t("plan.table"), COLUMNS, this.record.items, (job) => job.id, t("jobs.none")));
  }
}

const COLUMNS = [
  { key: "job", label: t("job.job"), cell: jobLink },
  { key: "user", label: t("job.user"), cell: (job) => h("bdi", {}, job.user) },
  { key: "planned", label: t("job.planned"), cell: (job) => time(job.start) },
  { key: "started", label: t("job.started"), cell: (job) => time(job.started) },
  { key: "difference", label: t("plan.difference"), kind: "number", cell: difference },
];

/** Return what came of a plan: kept, late, early, or open while the job has not started. */
function kindOf({ start, started }) {
  if (!started) return "open";
  return Math.abs(started - start) <= TOLERANCE ? "kept" : started > start ? "late" : "early";
}

function difference({ start, started }) {
  if (!started) return "…";
  if (Math.abs(started - start) <= TOLERANCE) return "0";
  return `${started < start ? "−" : "+"}${duration(Math.abs(started - start))}`;
}
