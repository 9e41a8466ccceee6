// How the jobs of an array are: a box for each, and totals.
import { ArrayGrid, JOB_CONDITIONS } from "../array-grid.js";
import { get } from "../common/api.js";
import { h } from "../common/dom.js";
import { duration, number, time } from "../common/format.js";
import { shareBar } from "../common/parts.js";
import { run } from "../common/page.js";
import { page } from "../common/site.js";
import { t } from "../common/words.js";

const id = Number(location.pathname.split("/").pop());
const OVER = ["good", "bad", "error"];
const grid = new ArrayGrid();
let shown = null;

function view(array) {
  shown = array;
  const over = OVER.reduce((sum, name) => sum + array.counts[name], 0);
  return [
    h("h1", {}, t("array.array"), " ", h("b", {}, array.id), array.name && h("bdi", {}, ` ${array.name}`), " ", h("small", {}, t("jobs.count", { n: array.total }))),
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

function facts(array) {
  return [
    [t("job.user"), h("bdi", {}, array.user)], [t("job.project"), h("bdi", {}, array.project)], [t("job.queue"), array.queue],
    [t("array.limit"), array.limit ?? "–"], [t("job.submitted"), time(array.submitted)], [t("job.started"), time(array.started)], [t("job.ended"), time(array.ended)],
    [t("array.shortest"), duration(array.shortest)], [t("array.median"), duration(array.median)], [t("array.longest"), duration(array.longest)],
  ];
}

const ofArray = ({ name, data }) => name === "jobs" || (name === "state" && (data.array === undefined || data.array === id));
run({ load: (signal) => get(`arrays/${id}`, {}, signal), view, shown: () => shown && grid.show(document.getElementById("main"), shown), concerns: ofArray });
