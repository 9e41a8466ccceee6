// What can be done with a job: its buttons, asked once where it cannot be taken back.
import { post, remove, requestKey } from "./api.js";
import { h } from "./dom.js";
import { duration } from "./format.js";
import { notice, outcome } from "./outcome.js";
import { now, page, site } from "./site.js";
import { t } from "./words.js";

const LIVE = ["toLaunch", "Launching", "Running", "Suspended", "Resuming"];
const ACTS = {
  hold: { label: t("act.hold"), states: ["Waiting", "toAckReservation"], run: (id) => post(`jobs/${id}/hold`, {}) },
  resume: { label: t("act.resume"), states: ["Hold", "Suspended"], run: (id) => post(`jobs/${id}/resume`) },
  checkpoint: { label: t("act.checkpoint"), states: ["Running"], run: (id) => post(`jobs/${id}/checkpoint`), question: () => t("act.checkpoint_question") },
  again: { label: t("act.again"), states: ["Terminated", "Error"], run: again },
  remove: {
    label: t("act.delete"), states: ["Waiting", "Hold", "toAckReservation", ...LIVE], isHard: true, run: (id) => remove(`jobs/${id}`),
    question: (job) => (job.started ? t("act.delete_running", { id: job.id, time: duration(now() - job.started) }) : t("act.delete_waiting", { id: job.id })),
  },
};

/** Submit a copy of a job, once however often the button is pressed, and show it. */
async function again(id) {
  const answer = await post(`jobs/${id}/resubmission`, undefined, { "Idempotency-Key": (sent ??= requestKey()) });
  location.assign(page("jobs", answer.id));
  return answer;
}

let sent = null;
let asked = null;
let told = null;
let hadFocus = false;

/** Whether who looks may do something with a job: it is his, or he is an administrator. */
export function may(job) {
  return site.user === job.user || site.administers;
}

/** Give the focus to the first button when that of the one which had it is gone. */
export function keepFocus() {
  if (hadFocus && document.activeElement === document.body) document.querySelector(".acts button")?.focus();
}

/** Show what can be done with a job; `redraw` shows it anew, `done` loads it anew. */
export function jobActs(job, redraw, done) {
  if (!may(job)) return null;
  hadFocus = Boolean(document.activeElement?.closest(".acts"));
  const possible = Object.entries(ACTS).filter(([, act]) => act.states.includes(job.state));
  const perform = async (act) => {
    asked = null;
    told = await outcome(() => act.run(job.id));
    done();
  };
  const begin = (name, act) => {
    told = null;
    if (!act.question) return perform(act);
    asked = name;
    redraw();
    document.querySelector(".question button")?.focus();
  };
  const refuse = () => {
    asked = null;
    redraw();
    document.querySelector(".acts button")?.focus();
  };
  const act = ACTS[asked];
  return h("div", { class: "acts", key: "acts" },
    act && possible.some(([name]) => name === asked)
      ? h("div", { class: "notice question", role: "group", "aria-label": act.label, on: { keydown: (event) => event.key === "Escape" && refuse() } },
        h("p", {}, act.question(job)),
        h("button", { type: "button", class: act.isHard ? "danger" : null, on: { click: () => perform(act) } }, act.label),
        " ", h("button", { type: "button", class: "quiet", on: { click: refuse } }, t("act.no")))
      : h("div", { class: "row" }, possible.map(([name, each]) => h("button", { type: "button", key: name, class: each.isHard ? "danger" : null, on: { click: () => begin(name, each) } }, each.label))),
    notice(told));
}
