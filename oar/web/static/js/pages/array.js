// How the jobs of an array are: a box for each, and totals.
import { ArrayGrid, JOB_CONDITIONS } from "../array-grid.js";
import { Acts } from "../acts.js";
import { get, post } from "../common/api.js";
import { h } from "../common/dom.js";
import { duration, number, time } from "../common/format.js";
import { shareBar } from "../common/parts.js";
import { may } from "../common/job-acts.js";
import { announce, run } from "../common/page.js";
import { page } from "../common/site.js";
import { t } from "../common/words.js";
import { commandLine } from "../reservation-fields.js";

const id = Number(location.pathname.split("/").pop());
const OVER = ["good", "bad", "error"];
const grid = new ArrayGrid();
let shown = null;

function view(array) {
  shown = array;
  const over = OVER.reduce((sum, name) => sum + array.counts[name], 0);
  return [
    h("h1", {}, t("array.array"), " ", h("b", {}, array.id), array.name && h("bdi", {}, ` ${array.name}`), " ", h("small", {}, t("jobs.count", { n: array.total }))),
    arrayActs(array),
    h("section", { class: "card", key: "grid" },
      h("p", {}, t("array.over", { n: number(over), total: number(array.total) }), " ", shareBar(over, array.total)),
      h("ul", { class: "legend" }, Object.entries(JOB_CONDITIONS).filter(([name]) => array.counts[name]).map(([name, { colour, mark, word }]) =>
        h("li", { key: name, class: "chip" }, h("i", { class: `box fill-${colour}`, "aria-hidden": "true" }, mark), ` ${word} `, h("b", {}, number(array.counts[name]))))),
      h("div", { id: "array-place" }),
      h("p", { id: "array-says", class: "says", role: "status" }, t("array.hint"))),
    h("dl", { class: "facts card", key: "facts" }, facts(array).map(([label, value]) => h("div", { key: label }, h("dt", {}, label), h("dd", {}, value)))),
    h("p", { key: "list" }, h("a", { href: page("jobs", null, { array: array.id, state: "all" }) }, t("array.list"))),
  ];
}

/** Jobs of one request; copies that a page submits one by one: of more the command is shown. */
const MOST = 10_000, MOST_COPIES = 500;
/** The status of an answer that wants fewer requests, and the milliseconds before the next one. */
const TOO_OFTEN = 429, PAUSE = 2000;
const acts = new Acts(() => actions.show(), () => actions.refresh());

/** Return the ids of the jobs in some conditions. */
function idsIn(array, conditions) {
  const ids = array.jobs.flatMap(([first, count]) => Array.from({ length: count }, (_, step) => first + step));
  return ids.filter((_, place) => conditions.includes(array.letters[array.marks[place]]));
}

/** Show what can be done with all jobs of the array, to their owner and to administrators. */
function arrayActs(array) {
  if (!may(array)) return null;
  const several = (key, label, conditions, question) => {
    const ids = idsIn(array, conditions).slice(0, MOST);
    return ids.length > 0 && { key, label: `${label} (${number(ids.length)})`, question: question?.(ids.length), run: () => actOn(key, label, ids) };
  };
  const failed = idsIn(array, ["bad", "error"]);
  return [
    acts.view([
      several("hold", t("act.hold"), ["waiting"]), several("resume", t("act.resume"), ["hold"]),
      failed.length > 0 && failed.length <= MOST_COPIES && { key: "again", label: t("array.again", { n: failed.length }), run: () => submitAgain(failed) },
      several("delete", t("act.delete"), ["waiting", "hold", "launching", "running", "suspended"], (n) => t("many.delete", { n })),
    ].filter(Boolean)),
    failed.length > 0 && commandLine(`oarsub --resubmit --array ${array.id} --state failed`, "again"),
  ];
}

async function actOn(act, label, ids) {
  const { items } = await post("job-acts", { act, ids }), refused = items.filter((item) => item.problem).length;
  return { message: [t("many.done", { n: items.length - refused, label }), refused > 0 && t("many.refused", { n: refused })].filter(Boolean).join(" ") };
}

/** Submit a copy of each job, one after the other; a copy that is asked for twice is made once. */
async function submitAgain(ids) {
  for (const [place, job] of ids.entries()) {
    try {
      await post(`jobs/${job}/resubmission`, undefined, { "Idempotency-Key": `array-${id}-${job}` });
    } catch (error) {
      if (error.record?.status !== TOO_OFTEN) throw error;
      await new Promise((go) => setTimeout(go, PAUSE));
      await post(`jobs/${job}/resubmission`, undefined, { "Idempotency-Key": `array-${id}-${job}` });
    }
    announce(t("array.copied", { n: place + 1, total: number(ids.length) }));
  }
  return { message: t("array.copied", { n: ids.length, total: number(ids.length) }) };
}

function facts(array) {
  return [
    [t("job.user"), h("bdi", {}, array.user)], [t("job.project"), h("bdi", {}, array.project)], [t("job.queue"), array.queue],
    [t("array.limit"), array.limit ?? "–"], [t("job.submitted"), time(array.submitted)], [t("job.started"), time(array.started)], [t("job.ended"), time(array.ended)],
    [t("array.shortest"), duration(array.shortest)], [t("array.median"), duration(array.median)], [t("array.longest"), duration(array.longest)],
  ];
}

const ofArray = ({ name, data }) => name === "jobs" || (name === "state" && (data.array === undefined || data.array === id));
const actions = run({ load: (signal) => get(`arrays/${id}`, {}, signal), view, shown: () => shown && grid.show(document.getElementById("main"), shown), concerns: ofArray });
