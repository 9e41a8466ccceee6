// What comes of a karma: how it fades for who submits nothing, and whose jobs come first meanwhile.
import { h } from "./common/dom.js";
import { number, time } from "./common/format.js";
import { table } from "./common/parts.js";
import { now } from "./common/site.js";
import { t } from "./common/words.js";

/** The terms of a karma by their names. */
export const TERMS = { project: t("usage.term_project"), user: t("usage.term_user"), asked: t("usage.term_asked") };
const WIDTH = 200, HEIGHT = 40;

/** Show the karma of the days to come, as a line and in words. */
export function fading({ karma, step, fades }) {
  const all = [karma, ...fades], most = Math.max(...all), least = Math.min(...all), wide = WIDTH / fades.length;
  const y = (value) => HEIGHT - ((value - least) * HEIGHT) / (most - least || 1);
  const at = (place) => now() + place * step, middle = Math.ceil(fades.length / 2);
  const told = (place) => [all[place].toFixed(2), " (", time(at(place)), ")"];
  return h("div", { key: "fades" }, h("h3", {}, t("fair.fades")),
    most > least && h("svg", { class: "karma", viewBox: `0 -2 ${WIDTH} ${HEIGHT + 4}`, preserveAspectRatio: "none", role: "img", "aria-label": t("fair.line", { from: karma.toFixed(2), to: all.at(-1).toFixed(2) }) },
      h("line", { class: "rule", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }),
      h("path", { d: all.map((value, place) => `${place ? "L" : "M"}${place * wide},${y(value)}`).join(" ") })),
    h("p", {}, t("fair.if_nothing"), " ", told(0), " → ", told(middle), " → ", told(fades.length), "."));
}

const COLUMNS = [
  { key: "user", label: t("filter.user"), cell: (each) => h("bdi", {}, each.user) },
  { key: "project", label: t("filter.project"), cell: (each) => h("bdi", {}, each.project) },
  { key: "waiting", label: t("fair.waiting"), kind: "number", cell: (each) => number(each.waiting) },
  { key: "karma", label: t("usage.karma"), kind: "number", cell: (each) => each.karma.toFixed(2) },
  { key: "by", label: t("fair.by"), cell: (each) => TERMS[each.by] },
];

/** Show whose waiting jobs come first, and by which term; nothing where the consumption of others is private. */
export function whoIsAhead({ ahead }) {
  return ahead && h("div", { key: "ahead" }, h("h3", {}, t("fair.ahead")), table(t("fair.ahead"), COLUMNS, ahead, (each) => `${each.user} ${each.project}`, t("fair.nobody")));
}
