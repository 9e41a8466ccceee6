// The request of a job as a sentence: "4 nodes, 32 cores, 2 h".
import { h } from "./dom.js";
import { amount, number } from "./format.js";
import { t } from "./words.js";

/** What the resources of jobs are unless they ask for others. */
export const OF_DEFAULT = "{type = 'default'}";
const CONDITION = String.raw`\{(?:'[^']*'|[^'}])*\}`;
const GROUP = new RegExp(String.raw`(${CONDITION})?((?:/\w+=\w+)+)`, "y");
const WALLTIME = /,walltime=(\d+):(\d+):(\d+)$/;
/** Levels of the hierarchy that have a word, with so many of them. */
const WORDS = {
  network_address: (n) => t("asked.nodes", { n }), host: (n) => t("asked.nodes", { n }), nodes: (n) => t("asked.nodes", { n }),
  cpu: (n) => t("asked.cpus", { n }), core: (n) => t("asked.cores", { n }), gpu: (n) => t("asked.gpus", { n }), gpudevice: (n) => t("asked.gpus", { n }),
  resource_id: (n) => t("asked.resources", { n }),
};

/** Show what a job asks for; the text of its -l is in the title. */
export function requestOf({ resources_asked: request }) {
  if (!request) return "–";
  const texts = request.trim().replace(/^-l "|"$/g, "").split('" -l "').map(sentence);
  return h("bdi", { title: request.trim() }, texts.includes(null) ? broken(request) : texts.join(` ${t("asked.or")} `));
}

/** Return an alternative as a sentence, null if it has another form. */
function sentence(text) {
  const walltime = WALLTIME.exec(text), groups = walltime ? text.slice(0, walltime.index) : text;
  const parts = [];
  GROUP.lastIndex = 0;
  while (GROUP.lastIndex < groups.length) {
    if (parts.length && groups[GROUP.lastIndex++] !== "+") return null;
    const found = GROUP.exec(groups);
    if (!found) return null;
    parts.push(group(found[1], found[2]));
  }
  if (!parts.length) return null;
  const seconds = walltime && walltime.slice(1).reduce((sum, part) => sum * 60 + Number(part), 0);
  return [parts.join(" + "), walltime && amount(seconds)].filter(Boolean).join(", ");
}

/** Return a group: how many of each level there are in all, and the condition of its resources. */
function group(condition, levels) {
  let all = 1;
  const counted = levels.slice(1).split("/").map((level) => {
    const [name, value] = level.split("=");
    all *= Number(value); // of ALL and BEST there is no number
    return Number.isNaN(all) ? level : WORDS[name]?.(all) ?? `${number(all)} ${name}`;
  });
  return counted.join(", ") + (condition && condition !== OF_DEFAULT ? ` (${condition.slice(1, -1)})` : "");
}

/** Let a request that is no sentence be broken between its parts. */
function broken(request) {
  const parts = request.trim().replaceAll(OF_DEFAULT, "").split(/(?<=[,+}])|(?=\/)/);
  return parts.map((part, place) => [place ? h("wbr", {}) : null, part]);
}
