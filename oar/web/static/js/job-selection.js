// Several jobs of a list are chosen, and one act is done with all of them: asked once, answered job by job.
import { post } from "./common/api.js";
import { h } from "./common/dom.js";
import { may } from "./common/job-acts.js";
import { duration, number } from "./common/format.js";
import { idsOf, jobsIn, sizeOf } from "./job-rows.js";
import { refusal } from "./common/outcome.js";
import { jobLink } from "./common/parts.js";
import { announce } from "./common/page.js";
import { now } from "./common/site.js";
import { t } from "./common/words.js";

const WAITING = ["Waiting", "toAckReservation"], LIVE = ["toLaunch", "Launching", "Running", "Suspended", "Resuming"];
const ACTS = {
  delete: { label: t("act.delete"), states: [...WAITING, "Hold", ...LIVE], isHard: true, question: (n) => t("many.delete", { n }), lost: lostRuns },
  hold: { label: t("act.hold"), states: WAITING, question: (n) => t("many.hold", { n }) },
  resume: { label: t("act.resume"), states: ["Hold", "Suspended"], question: (n) => t("many.resume", { n }) },
  checkpoint: { label: t("act.checkpoint"), states: ["Running"], question: (n) => t("many.checkpoint", { n }) },
};
/** Jobs of one request; answers that are shown before the others are only counted. */
const MOST = 10_000, MOST_TOLD = 200;

/** Say what is lost with jobs that have begun: how many, and for how long the longest has run. */
function lostRuns(jobs) {
  const begun = jobs.filter((job) => job.started);
  return begun.length > 0 && t("many.lost", { n: begun.length, time: duration(now() - Math.min(...begun.map((job) => job.started))) });
}

/** Whether who looks may do anything with a job of the list. */
function isForUs(job) {
  return may(job) && Object.values(ACTS).some((act) => act.states.includes(job.state));
}

export class JobSelection {
  /** `redraw` shows the page anew, `done` loads it anew. */
  constructor(redraw, done) {
    Object.assign(this, { redraw, done, ids: new Set(), asked: null, told: null, trouble: "", isSending: false });
  }

  /** Return the chosen ones among the jobs of the rows in view: what is out of sight is not acted on. */
  chosen(rows) {
    if (!this.ids.size) return [];
    return rows.filter(isForUs).flatMap((row) => idsOf(row).filter((id) => this.ids.has(id)).map((id) => ({ id, state: row.state, started: row.members ? row.members.started : row.started })));
  }

  /** Return the column of boxes, null if nothing can be done with any of the jobs. */
  column(rows) {
    const possible = rows.filter(isForUs);
    if (!possible.length) return null;
    const count = this.chosen(rows).length, isAll = count === jobsIn(possible);
    const all = h("input", { type: "checkbox", "aria-label": t("many.all"), title: t("many.all"), checked: isAll, indeterminate: count > 0 && !isAll, on: { change: () => this.chooseAll(possible, !isAll) } });
    return { key: "chosen", label: all, cell: (row) => isForUs(row) && this.box(row) };
  }

  /** Show the box of a row, which is of one job or of some of an array. */
  box(row) {
    const count = this.chosen([row]).length, n = sizeOf(row), isAll = count === n;
    const label = n > 1 ? t("many.several", { n, id: row.id }) : t("many.one", { id: row.id });
    return h("input", { type: "checkbox", "aria-label": label, checked: isAll, indeterminate: count > 0 && !isAll, on: { change: () => this.chooseAll([row], !isAll) } });
  }

  chooseAll(rows, isWanted) {
    for (const id of rows.flatMap(idsOf)) isWanted ? this.ids.add(id) : this.ids.delete(id);
    this.changed();
  }

  changed() {
    this.asked = null;
    this.told = null;
    this.trouble = "";
    this.redraw();
  }

  /** Show how many are chosen and what can be done with them, the question about it, and what came of it. */
  view(rows) {
    const chosen = this.chosen(rows);
    if (!chosen.length && !this.told && !this.trouble) return null;
    return h("section", { class: "acts selection", key: "selection", "aria-label": t("many.title") },
      chosen.length > 0 && (this.asked ? this.question(chosen) : this.buttons(chosen)),
      this.trouble && h("p", { class: "notice bad", role: "alert", key: "trouble" }, h("bdi", {}, this.trouble)),
      this.told && this.answers());
  }

  buttons(chosen) {
    const possible = Object.entries(ACTS).filter(([, act]) => chosen.some((job) => act.states.includes(job.state)));
    return h("div", { class: "row", key: "buttons" },
      h("b", {}, t("many.count", { n: chosen.length })),
      possible.map(([name, act]) => h("button", { type: "button", key: name, class: act.isHard ? "danger" : null, disabled: this.isSending, on: { click: () => this.ask(name) } }, act.label)),
      h("button", { type: "button", key: "none", class: "quiet", on: { click: () => ((this.ids = new Set()), this.changed()) } }, t("many.none")));
  }

  ask(name) {
    this.asked = name;
    this.told = null;
    this.redraw();
    document.querySelector(".selection .question button")?.focus();
  }

  question(chosen) {
    const act = ACTS[this.asked], meant = chosen.filter((job) => act.states.includes(job.state)).slice(0, MOST), others = chosen.length - meant.length;
    const refuse = () => {
      this.asked = null;
      this.redraw();
      document.querySelector(".selection button")?.focus();
    };
    return h("div", { class: "notice question", key: "question", role: "group", "aria-label": act.label, on: { keydown: (event) => event.key === "Escape" && refuse() } },
      h("p", {}, act.question(meant.length), act.lost && [" ", act.lost(meant)]),
      others > 0 && h("p", { class: "faint" }, t("many.others", { n: others })),
      h("button", { type: "button", class: act.isHard ? "danger" : null, disabled: !meant.length, on: { click: () => this.perform(this.asked, meant) } }, act.label), " ",
      h("button", { type: "button", class: "quiet", on: { click: refuse } }, t("act.no")));
  }

  async perform(act, jobs) {
    this.asked = null;
    this.isSending = true;
    this.redraw();
    try {
      const { items, warnings } = await post("job-acts", { act, ids: jobs.map((job) => job.id) });
      this.told = { label: ACTS[act].label, items, warnings };
      for (const item of items) if (!item.problem) this.ids.delete(item.id);
      announce(t("many.done", { n: items.filter((item) => !item.problem).length, label: this.told.label }));
    } catch (error) {
      this.trouble = refusal(error);
    }
    this.isSending = false;
    await this.done();
    if (document.activeElement === document.body) document.querySelector(".selection button, th input")?.focus(); // the button that had it is gone
  }

  /** Show what came of each job: of those that were refused why, the others on demand. */
  answers() {
    const { items, warnings, label } = this.told, refused = items.filter((item) => item.problem), done = items.filter((item) => !item.problem);
    return h("div", { class: refused.length ? "notice bad" : "notice", key: "told" },
      h("p", { role: "status" }, t("many.done", { n: done.length, label }), refused.length > 0 && ` ${t("many.refused", { n: refused.length })}`, warnings.map((each) => [" ", h("bdi", {}, each)])),
      refused.length > 0 && list("refused", refused),
      done.length > 0 && h("details", { key: "done" }, h("summary", {}, t("many.each")), list("done", done)));
  }
}

function list(key, items) {
  const rest = items.length - MOST_TOLD;
  return h("ul", { class: "plain", key }, items.slice(0, MOST_TOLD).map((item) => h("li", { key: item.id }, jobLink(item), " ", h("bdi", {}, item.problem?.detail ?? item.done))),
    rest > 0 && h("li", { key: "rest" }, t("nodes.more", { n: number(rest) })));
}
