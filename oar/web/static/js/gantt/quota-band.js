// Above the jobs: which quotas hold when, where they have a calendar.
import { get } from "../common/api.js";
import { draw, h } from "../common/dom.js";
import { fullDate, number } from "../common/format.js";
import { t } from "../common/words.js";
import { SERIES } from "./colours.js";
import { shortened } from "./view.js";

/** Seconds in sight up to which single periods can be told apart; so many days are asked for at most. */
const LONGEST = 45 * 86_400;
const HEIGHT = 18;
/** Names that are cut to fewer letters tell nothing. */
const SHORTEST = 3;
/** Periods that are named for who cannot see the band. */
const MOST_TOLD = 12;

export class QuotaBand {
  items = [];
  names = [];
  isNone = false;
  asked = null;

  /** It is shown in `element`. */
  constructor(element, view) {
    Object.assign(this, { element, view });
    view.over.push(() => this.place());
  }

  /** Ask for the periods around those in sight, unless they are known or there are none. */
  async learn() {
    const { view, asked } = this, { from, to, span } = view;
    if (this.isNone || span > LONGEST || (asked && asked.from <= from && asked.to >= to)) return;
    const period = { from: Math.max(0, Math.floor(from - span / 2)), to: Math.ceil(to + span / 2) };
    const record = await get("gantt/quotas", period).catch(() => null);
    if (!record) return;
    this.asked = period;
    this.isNone = !record.items.length;
    this.items = record.items;
    this.names = [...new Set([...this.names, ...record.items.map((each) => each.name)])];
    this.drawn = "";
    this.place();
  }

  /** Put the periods where they are on the diagram. */
  place() {
    const { view, element, names } = this, seen = view.span > LONGEST ? [] : this.items.filter((each) => each.from < view.to && each.to > view.from);
    const key = seen.length ? `${view.from} ${view.scale} ${view.width} ${view.left}` : "";
    if (key === this.drawn) return;
    this.drawn = key;
    element.hidden = !seen.length;
    if (!seen.length) return;
    const told = seen.slice(0, MOST_TOLD).map((each) => `${each.name} ${fullDate(Math.max(each.from, view.from)).slice(0, 16)} – ${fullDate(Math.min(each.to, view.to)).slice(0, 16)}`).join(", ");
    draw(element, h("svg", { viewBox: `0 0 ${view.width} ${HEIGHT}`, role: "img", "aria-label": `${t("quotas.band")} ${told}` },
      seen.map((each) => {
        const x = Math.max(view.left, view.x(each.from)), right = Math.min(view.width, view.x(each.to)), words = shortened(each.name, right - x - 8);
        return h("g", { key: each.from }, h("title", {}, `${each.name}: ${t("quotas.rules", { n: number(each.rules) })}`),
          h("rect", { x, y: 1, width: Math.max(0.5, right - x - 1), height: HEIGHT - 2, fill: `rgb(${SERIES[names.indexOf(each.name) % SERIES.length].join()})`, "fill-opacity": 0.35 }),
          (words.length > SHORTEST || words === each.name) && h("text", { x: x + 4, y: HEIGHT - 5 }, words));
      }),
      h("text", { key: "label", class: "label", x: 4, y: HEIGHT - 5 }, t("quotas.short"))));
  }
}
