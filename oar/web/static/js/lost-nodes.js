// Which nodes were out of use, and for how long energy was saved.
import { h } from "./common/dom.js";
import { number } from "./common/format.js";
import { nodeLink, RESOURCE_WORDS, table } from "./common/parts.js";
import { t } from "./common/words.js";

const HOUR = 3600;
const STATES = ["Suspected", "Absent", "Dead"];

function hours(seconds) {
  return seconds ? number(Math.round((10 * seconds) / HOUR) / 10) : "–";
}

const COLUMNS = [
  { key: "node", label: t("node.node"), cell: (each) => nodeLink(each.node) },
  { key: "times", label: t("lost.suspected"), kind: "number", cell: (each) => number(each.suspected) },
  ...STATES.map((state) => ({ key: state, label: `${RESOURCE_WORDS[state]}, h`, kind: "number", cell: (each) => hours(each.seconds[state]) })),
];

/** Show the nodes that were suspected most often, and the node hours that were saved. */
export function lostNodes({ items, halted }) {
  return [
    halted > 0 && h("p", { key: "halted" }, t("lost.halted", { hours: hours(halted) })),
    table(t("lost.title"), COLUMNS, items, (each) => each.node, t("lost.none")),
  ];
}
