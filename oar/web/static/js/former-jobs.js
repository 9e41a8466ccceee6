// What somebody has submitted before: a form begins with one of his jobs, and tells how long such jobs took.
import { get } from "./common/api.js";
import { h } from "./common/dom.js";
import { duration } from "./common/format.js";
import { site } from "./common/site.js";
import { t } from "./common/words.js";
import { enoughFor, fieldsOf, givenProperties, written } from "./job-wishes.js";

/** Ended jobs that are looked at, and rows of them; kinds of them that are offered; jobs of a kind that tell how long it takes. */
const LOOKED_AT = 200, OFFERED = 20, TELLING = 20;

export class Former {
  jobs = [];
  /** Rows, in which a large array does not hide what was submitted before it. */
  rows = [];

  /** Fetch the ended jobs of who looks, the last ones first, once. */
  async load(signal) {
    if (this.rows.length) return;
    const asked = { user: site.user, state: "Terminated,Error", newest_first: true, details: true, limit: LOOKED_AT };
    const found = await Promise.all([get("jobs", asked, signal), get("jobs", { ...asked, fold: true }, signal)]).catch(() => [{ items: [] }, { items: [] }]);
    [this.jobs, this.rows] = found.map(({ items }) => items.filter((job) => job.started && job.command));
  }

  /** Offer former jobs, each kind once; `alter` takes the fields of the form. */
  choice(alter) {
    const kinds = new Map(this.rows.toReversed().map((job) => [`${job.name ?? ""} ${job.command}`, job]));
    const offered = [...kinds.values()].sort((a, b) => b.id - a.id).slice(0, OFFERED);
    if (!offered.length) return null;
    const take = (event) => {
      const job = offered.find((each) => String(each.id) === event.target.value);
      event.target.value = "";
      if (job) alter(fieldsOf(job) ?? asItHad(job));
    };
    return h("p", { class: "filters", key: "former" }, h("label", { class: "long" }, h("span", {}, t("submit.former")),
      h("select", { name: "former", on: { change: take } }, h("option", { key: "", value: "" }, "–"),
        offered.map((job) => h("option", { key: job.id, value: String(job.id) }, [job.id, job.name, job.command].filter(Boolean).join(" · "))))));
  }

  /** Tell how long jobs like the one that is asked for took; `alter` takes the walltime that follows. */
  advice({ name, command, walltime }, alter) {
    const alike = name || command ? this.jobs.filter((job) => job.state === "Terminated" && (name ? job.name === name : job.command === command)).slice(0, TELLING) : [];
    if (!alike.length) return null;
    const longest = Math.max(...alike.map((job) => job.ended - job.started));
    const enough = written(enoughFor(longest));
    return h("p", { key: "took", class: "advice" }, t("submit.took", { n: alike.length, what: name || command, time: duration(longest) }), " ",
      enough !== walltime && h("button", { type: "button", class: "link", on: { click: () => alter({ walltime: enough }) } }, t("submit.shorter", { walltime: enough })));
  }
}

/** Offer the templates of the site; `alter` takes the fields of the form, which they fill or empty. */
export function templateChoice(templates, fields, alter) {
  if (!templates.length) return null;
  const take = (event) => {
    const template = templates[event.target.value];
    event.target.value = "";
    if (template) alter(Object.fromEntries(fields.map((name) => [name, template[name] ?? ""])));
  };
  return h("p", { class: "filters", key: "templates" }, h("label", { class: "long" }, h("span", {}, t("submit.template")),
    h("select", { name: "template", on: { change: take } }, h("option", { key: "", value: "" }, "–"),
      templates.map((template, place) => h("option", { key: place, value: String(place) }, template.label)))));
}

/** Return the fields of the form that ask for what a job had. */
function asItHad(job) {
  const nodes = job.nodes.length, each = job.resources.length / nodes;
  return {
    command: job.command, name: job.name ?? "", queue: job.queue, project: job.project, properties: givenProperties(job),
    nodes: nodes ? String(nodes) : "", unit: "", each: nodes && Number.isInteger(each) ? String(each) : "",
    walltime: job.walltime ? written(job.walltime) : "", types: job.types.join(" "),
  };
}
