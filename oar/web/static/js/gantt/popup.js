// A small card beside the pointer, or beside the job that keys have chosen: what is there.
import { get } from "../common/api.js";
import { draw, h } from "../common/dom.js";
import { duration, fullDate, number } from "../common/format.js";
import { english, jobState, resourceState } from "../common/parts.js";
import { t } from "../common/words.js";
import { WAITED } from "../common/waited.js";
import { FOR_EVER, PLANNED, RUNNING } from "./blocks.js";

/** Milliseconds on a job that waits after which it is asked why. */
const CURIOUS = 120;
/** Pixels between the pointer and the card. */
const BESIDE = 14;
/** Explanations that are remembered, and for how long, in milliseconds. */
const REMEMBERED = 100, FRESH = 20_000;
const FIRMNESS = { fixed: t("firmness.fixed"), latest: t("firmness.latest"), tentative: t("firmness.tentative") };

/** Return from when until when something goes, to the minute. */
export function span(begin, end) {
  const from = fullDate(begin).slice(0, 16), to = end < FOR_EVER ? fullDate(end).slice(0, 16) : t("gantt.lasts");
  return `${from} → ${from.slice(0, 10) === to.slice(0, 10) ? to.slice(11) : to}`;
}

/** Return what is told of a job, [label, text]. */
function factsOf(job) {
  const end = job.phase === 0 ? job.end : job.walltime ? job.begin + job.walltime : FOR_EVER;
  return [
    [t("job.user"), job.user],
    [t("job.queue"), job.queue],
    [t("job.project"), job.project],
    [t("job.types"), [job.types, job.kind === "INTERACTIVE" ? job.kind : ""].filter(Boolean).join(" ")],
    [t("nodes.resources"), number(job.resources)],
    [job.phase === PLANNED ? t("job.planned") : t("gantt.when"), span(job.begin, end)],
    [t("job.walltime"), job.walltime ? duration(job.walltime) : ""],
    [job.phase === PLANNED ? "" : t("gantt.ran_for"), job.phase === RUNNING ? "" : duration(end - job.begin)],
    [t("gantt.efficiency"), job.efficiency],
    [t("job.submitted"), fullDate(job.submitted).slice(0, 16)],
  ].filter(([label, text]) => label && text);
}

export class PopUp {
  told = new Map(); // id -> {at, answer}
  job = 0;

  constructor(frame) {
    this.frame = frame;
    this.card = document.createElement("div");
    this.card.className = "gantt-card";
    this.card.setAttribute("aria-hidden", "true"); // the line below the diagram says the same
    this.card.hidden = true;
    frame.append(this.card);
    addEventListener("scroll", () => this.hide(), { passive: true });
  }

  hide() {
    clearTimeout(this.timer);
    this.card.hidden = true;
    this.job = 0;
  }

  /** Show what is at a place of the frame, which `place()` tells; `chosen` is what the worker has found there. */
  show(chosen, place) {
    const { job, row, states = [], reservations = [] } = chosen ?? {};
    if (!place?.() || !(job || states.length || reservations.length || row)) return this.hide();
    this.chosen = chosen;
    this.place = place;
    this.fill();
    if (job?.phase === PLANNED && this.job !== job.id) this.ask(job.id);
    this.job = job?.id ?? 0;
  }

  /** Ask why a job waits, unless the pointer only passes. */
  ask(id) {
    clearTimeout(this.timer);
    const known = this.told.get(id);
    if (known && Date.now() - known.at < FRESH) return;
    this.timer = setTimeout(async () => {
      const answer = await get(`jobs/${id}/explanation`).catch(() => null);
      if (!answer) return;
      this.told.set(id, { at: Date.now(), answer });
      if (this.told.size > REMEMBERED) this.told.delete(this.told.keys().next().value);
      if (this.job === id && !this.card.hidden) this.fill();
    }, CURIOUS);
  }

  fill() {
    const { job, row, states = [], reservations = [] } = this.chosen;
    draw(this.card,
      job && h("p", { key: "job", class: "head" }, h("b", {}, job.id), job.name && h("bdi", {}, ` ${job.name}`), " ", jobState(job)),
      job && h("dl", { key: "facts" }, factsOf(job).map(([label, text]) => h("div", { key: label }, h("dt", {}, label), h("dd", {}, h("bdi", {}, text))))),
      job?.phase === PLANNED && this.reason(job),
      reservations.map((each) => h("p", { key: `ar ${each.id}` }, `${t("ar.one")} `, h("b", {}, each.id), each.ar_name && h("bdi", {}, ` ${each.ar_name}`), ` · ${each.user} · ${span(each.from, each.to)}`)),
      states.map((each, place) => h("p", { key: `state ${place}` }, h("b", {}, resourceState(each.state)), ` ${span(each.begin, each.end)}`)),
      row && h("p", { key: "row", class: "faint" }, h("bdi", {}, [row.group, row.label].filter(Boolean).join(" ")), ` (${t("job.resources", { n: row.number })})`));
    this.card.hidden = false;
    const box = this.frame.getBoundingClientRect(), { offsetWidth, offsetHeight } = this.card;
    const at = this.place() ?? { x: 0, y: 0 }, x = box.left + at.x, y = box.top + at.y + BESIDE;
    const left = x + BESIDE + offsetWidth < innerWidth ? x + BESIDE : Math.max(0, x - BESIDE - offsetWidth);
    const top = Math.max(0, Math.min(y, innerHeight - offsetHeight - 2));
    this.card.style.setProperty("left", `${left}px`);
    this.card.style.setProperty("top", `${top}px`);
  }

  /** Say why a job waits, how firm its start is, and how good such promises were. */
  reason(job) {
    const why = this.told.get(job.id)?.answer;
    if (!why?.sentence) return job.reason && h("p", { key: "why", class: "why" }, `${t("gantt.waits")} ${WAITED[job.reason] ?? job.reason}`);
    return [
      h("p", { key: "why", class: "why" }, english(why.sentence)),
      why.start && h("p", { key: "firm", class: "faint" }, FIRMNESS[why.start.firmness],
        why.start.half_off_by != null && ` · ${t("why.measured", { half: duration(why.start.half_off_by), most: duration(why.start.most_off_by) })}`),
    ];
  }
}
