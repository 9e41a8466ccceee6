// What can be done with a node, a queue, a reservation: buttons; what cannot be taken back is asked once.  What is refused
// because it breaks something of others can be insisted on, where the act says so.
import { h } from "./common/dom.js";
import { notice, outcome } from "./common/outcome.js";
import { t } from "./common/words.js";

/** Show a field for why nodes are taken away; what is typed into it is told to `take`. */
export function reasonField(value, take) {
  return h("label", { key: "reason", class: "long" }, h("span", {}, t("node.reason")),
    h("input", { name: "reason", maxlength: "255", autocomplete: "off", placeholder: t("node.reason_hint"), value, on: { input: (event) => take(event.target.value) } }));
}

/** The status of a refusal that can be insisted on. */
const CONFLICT = 409;

export class Acts {
  /** `redraw` shows the page anew, `done` loads it anew and returns when it is there. */
  constructor(redraw, done) {
    Object.assign(this, { redraw, done, asked: null, told: null });
  }

  /** Show acts, {key, label, question, run, isForcible}; `run(isForced)`; `subject` tells those of one thing from those of another. */
  view(acts, subject = "") {
    const asked = acts.find((act) => this.asked === `${subject} ${act.key}`);
    return h("div", { class: "acts", key: `acts ${subject}`, "data-subject": subject },
      asked ? this.question(asked) : h("div", { class: "row" }, acts.map((act) => h("button", { type: "button", key: act.key, class: act.question ? "danger" : null, on: { click: () => this.begin(act, subject) } }, act.label))),
      this.told?.subject === subject && notice(this.told, this.told.insists && this.insistence(this.told.insists)));
  }

  insistence(act) {
    return h("button", { type: "button", class: "danger", on: { click: () => this.perform(act, true) } }, t("act.insist"));
  }

  question(act) {
    const refuse = () => ((this.asked = null), this.redraw(), this.keepFocus());
    return h("div", { class: "notice question", role: "group", "aria-label": act.label, on: { keydown: (event) => event.key === "Escape" && refuse() } },
      h("p", {}, act.question), h("button", { type: "button", class: "danger", on: { click: () => this.perform(act) } }, act.label), " ",
      h("button", { type: "button", class: "quiet", on: { click: refuse } }, t("act.no")));
  }

  begin(act, subject) {
    this.subject = subject;
    this.told = null;
    if (!act.question) return this.perform(act);
    this.asked = `${subject} ${act.key}`;
    this.redraw();
    document.querySelector(".question button")?.focus();
  }

  async perform(act, isForced = false) {
    this.asked = null;
    const { subject } = this, told = await outcome(() => act.run(isForced));
    const insists = act.isForcible && !isForced && told.status === CONFLICT ? act : null;
    this.told = { ...told, subject, insists, hint: insists ? "" : told.hint }; // the button is the hint
    await this.done();
    this.keepFocus();
  }

  /** Give the focus to the first button where that of the one which had it is gone: who uses keys goes on from there. */
  keepFocus() {
    if (document.activeElement !== document.body) return;
    [...document.querySelectorAll(".acts[data-subject]")].find((each) => each.dataset.subject === this.subject)?.querySelector("button")?.focus();
  }
}
