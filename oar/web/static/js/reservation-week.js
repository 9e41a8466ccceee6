// A week with rows of resources: what is reserved of each, and an area that somebody wants to reserve.
import { h } from "./common/dom.js";
import { fullDate } from "./common/format.js";
import { announce } from "./common/page.js";
import { now, page } from "./common/site.js";
import { t } from "./common/words.js";

const HOUR = 3600, DAY = 24 * HOUR, WEEK = 7 * DAY;
/** An area begins and ends at multiples of it. */
const STEP = HOUR / 2;
/** Rows that are shown. */
const MOST_ROWS = 40;
/** The week in units of its drawing. */
export const WIDTH = 700;
export const HEIGHT = 24;

/** Return the lines between the days of a week, and the line of now. */
export function ruled(from) {
  const x = (now() - from) * (WIDTH / WEEK);
  return [[1, 2, 3, 4, 5, 6].map((day) => h("line", { key: day, class: "rule", x1: (day * WIDTH) / 7, x2: (day * WIDTH) / 7, y1: 0, y2: HEIGHT })),
    h("line", { key: "present", class: "present", x1: x, x2: x, y1: 0, y2: HEIGHT })];
}

/** Return a box of a row, from a date to another one. */
export function box(from, begin, end, more) {
  const x = (date) => (Math.max(0, Math.min(WEEK, date - from)) * WIDTH) / WEEK;
  return h("rect", { x: x(begin), y: 4, width: Math.max(3, x(end) - x(begin)), height: HEIGHT - 8, ...more });
}

export class ReservationWeek {
  area = null; // {from, to, row}
  corner = null;

  /** `redraw` shows the page anew. */
  constructor(redraw) {
    this.redraw = redraw;
  }

  /**
   * Show the week that begins at `from`; `rows` is an answer of /v1/gantt/rows, null: all resources are one row; `named`
   * is the property of its rows.
   */
  show(from, reservations, rows, named, head) {
    const all = rows ? rows.items.map(({ labels, type, resources }) => ({ label: labels[0] || type, value: labels[0], resources })) : [{ label: t("ar.all_resources"), value: "", resources: null }];
    Object.assign(this, { from, named, rows: all.slice(0, MOST_ROWS) });
    if (this.area && (this.area.row >= this.rows.length || this.area.from < from || this.area.to > from + WEEK)) this.area = null;
    const on = { pointerdown: (event) => this.press(event), pointermove: (event) => this.drag(event), pointerup: () => this.release(), pointercancel: () => this.release(), keydown: (event) => this.key(event) };
    return h("section", { key: "week" },
      h("div", { class: "row-week", key: "head", "aria-hidden": "true" }, h("span", {}), head),
      h("div", { class: "weeks", key: "rows", role: "application", tabindex: "0", "aria-label": t("ar.week"), "aria-describedby": "week-keys", on },
        this.rows.map((row, place) => this.row(row, place, reservations))),
      all.length > MOST_ROWS && h("p", { class: "faint", key: "rest" }, t("nodes.more", { n: all.length - MOST_ROWS })),
      this.tools(),
      h("p", { class: "faint", key: "keys", id: "week-keys" }, t("ar.week_keys")));
  }

  row({ label, resources }, place, reservations) {
    const { from, area } = this, met = resources ? reservations.filter((each) => meets(each.resources, resources)) : reservations;
    return h("div", { class: "row-week", key: place, "data-row": place }, h("bdi", {}, label),
      h("svg", { class: "week", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}: ${met.map(told).join(", ") || t("ar.none")}` },
        ruled(from), met.map((each) => h("g", { key: each.id }, h("title", {}, told(each)), box(from, each.start_time, each.end_time, { class: each.missing.length ? "fill-suspected" : "fill-reserved", "fill-opacity": 0.7 }))),
        area?.row === place && box(from, area.from, area.to, { key: "area", class: "area" })));
  }

  /** Say what is selected, and what can be done with it. */
  tools() {
    if (!this.area) return null;
    return h("div", { class: "row notice", key: "selection", role: "group", "aria-label": t("gantt.selection") },
      h("span", {}, this.extent()), h("a", { key: "reserve", href: this.address() }, t("gantt.reserve")),
      h("button", { type: "button", class: "quiet", key: "close", on: { click: () => this.select(null) } }, t("gantt.unselect")));
  }

  extent() {
    const { from, to, row } = this.area;
    return `${fullDate(from).slice(0, 16)} → ${fullDate(to).slice(0, 16)} · ${this.rows[row].label}`;
  }

  /** Return the address of the form with what is selected. */
  address() {
    const { named, area: { from, to, row } } = this, { value } = this.rows[row];
    if (named === "network_address" && value) return page("reservations", "new", { from, to, nodes: 1, hosts: value });
    return page("reservations", "new", { from, to, properties: value ? `${named} = '${value.replaceAll("'", "''")}'` : "" });
  }

  /** Select from a date to another one of a row: whole steps of this week that are not over; null: nothing. */
  select(area) {
    if (area) {
      const first = Math.max(this.from, Math.ceil(now() / STEP) * STEP), last = this.from + WEEK;
      if (first >= last) return announce(t("ar.over"));
      const from = Math.min(Math.max(first, Math.floor(area.from / STEP) * STEP), last - STEP), row = Math.max(0, Math.min(this.rows.length - 1, area.row));
      area = { from, to: Math.min(last, Math.max(from + STEP, Math.ceil(area.to / STEP) * STEP)), row };
    }
    this.area = area;
    this.redraw();
  }

  press(event) {
    const line = event.target.closest("[data-row]"), drawing = line?.querySelector("svg").getBoundingClientRect();
    if (!line || event.button || event.clientX < drawing.left) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    this.corner = { drawing, row: Number(line.dataset.row), date: this.date(event, drawing) };
  }

  date(event, { left, width }) {
    return this.from + Math.max(0, Math.min(1, (event.clientX - left) / width)) * WEEK;
  }

  drag(event) {
    if (!this.corner) return;
    const { drawing, row, date } = this.corner, here = this.date(event, drawing);
    if (Math.abs(here - date) > STEP / 2) this.select({ from: Math.min(date, here), to: Math.max(date, here), row });
  }

  release() {
    if (this.corner && this.area) announce(this.extent());
    this.corner = null;
  }

  /** Select the first hour that can be reserved. */
  begin() {
    const from = Math.ceil(Math.max(now(), this.from) / HOUR) * HOUR;
    this.select({ from, to: from + HOUR, row: 0 });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { area } = this, moves = { ArrowLeft: -HOUR, ArrowRight: HOUR, PageUp: -DAY, PageDown: DAY }, by = moves[event.key], down = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.key === "Enter" && area) location.assign(this.address());
    else if (event.key === "Escape") this.select(null);
    else if (!by && !down) return;
    else if (!area) this.begin();
    else if (down) this.select({ ...area, row: area.row + down });
    else if (event.shiftKey) this.select({ ...area, to: area.to + by });
    else this.select({ ...area, from: area.from + by, to: area.to + by });
    event.preventDefault();
    if (this.area) announce(this.extent());
  }
}

function meets(ids, ranges) {
  return ranges.some(([first, count]) => ids.some((id) => id >= first && id < first + count));
}

function told(each) {
  return `${each.id} ${each.ar_name ?? ""} ${fullDate(each.start_time).slice(0, 16)} → ${fullDate(each.end_time).slice(0, 16)}`;
}
