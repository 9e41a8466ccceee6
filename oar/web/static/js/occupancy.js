// How busy the cluster was in the last hours, and will be in the next ones, as a curve.
import { get } from "./common/api.js";
import { h } from "./common/dom.js";
import { percent, time } from "./common/format.js";
import { now, page } from "./common/site.js";
import { t } from "./common/words.js";

/** Seconds before and after now; seconds of a part, to which the begin is rounded, so that all ask for the same. */
const REACH = 86_400, PART = 900;
/** Milliseconds after which the curve is asked for again. */
const AGE = 60_000;
export const WIDTH = 192;
export const HEIGHT = 40;

export class Occupancy {
  record = null;
  asked = 0;
  isAsking = false;

  /** `show` is called when there is something new to show. */
  constructor(show) {
    this.show = show;
  }

  /** Ask for the curve if it is old. */
  async renew() {
    if (Date.now() - this.asked < AGE) return;
    this.asked = Date.now();
    this.isAsking = true;
    const middle = Math.floor(now() / PART) * PART;
    this.record = await get("gantt/occupancy", { from: middle - REACH, to: middle + REACH, bucket: PART }).catch(() => this.record);
    this.isAsking = false;
    this.show();
  }

  view() {
    const { record } = this;
    if (!record) return this.isAsking ? room() : null;
    if (!record.resources) return null;
    const both = record.used.map((used, part) => used + record.planned[part]);
    const past = mean(record.used.filter((_, part) => record.from + (part + 1) * record.bucket <= record.now));
    const next = mean(both.filter((_, part) => record.from + part * record.bucket >= record.now));
    const label = t("dashboard.curve", { past: percent(past, record.resources), next: percent(next, record.resources) });
    return h("a", { class: "curve", key: "curve", href: page("gantt", null, { from: record.from, to: record.from + record.bucket * record.used.length }), title: t("menu.gantt") },
      h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
        curve(record)),
      h("span", { class: "ends" }, time(record.from), h("span", { class: "middle" }, label), time(record.from + record.bucket * record.used.length)));
  }
}

/** Keep the room for the curve: nothing jumps when it comes. */
function room() {
  return h("div", { class: "curve", key: "curve", "aria-busy": "true" }, h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }), h("span", { class: "ends" }, "…"));
}

/** Return what a drawing of WIDTH and HEIGHT has of a record: what was unusable, is planned, is used, and now. */
export function curve(record) {
  const at = ((record.now - record.from) / record.bucket) * (WIDTH / record.used.length);
  return [
    h("path", { class: "fill-absent", d: area(record.unusable, record.resources, true) }),
    h("path", { class: "plan", d: area(record.used.map((used, part) => used + record.planned[part]), record.resources) }),
    h("path", { class: "fill-used", d: area(record.used, record.resources) }),
    h("rect", { class: "fill-mark", x: at - 0.25, y: 0, width: 0.5, height: HEIGHT }),
  ];
}

/** Return the outline of an area of steps, from below or from above. */
function area(values, most, isAbove = false) {
  const wide = WIDTH / values.length, base = isAbove ? 0 : HEIGHT;
  const y = (value) => Math.round(100 * (isAbove ? HEIGHT * Math.min(1, value / most) : HEIGHT * (1 - Math.min(1, value / most)))) / 100;
  return `M0,${base} ${values.map((value, part) => `L${Math.round(100 * part * wide) / 100},${y(value)} L${Math.round(100 * (part + 1) * wide) / 100},${y(value)}`).join(" ")} L${WIDTH},${base} Z`;
}

function mean(values) {
  return values.length ? values.reduce((sum, each) => sum + each, 0) / values.length : 0;
}
