// What can be done with a node, a queue, a reservation: buttons; what cannot be taken back is asked once.  What is refused
// because it breaks something of others can be insisted on, where the act says so.
import { h } from "./common/dom.js";
import { t } from "./common/words.js";

/** The status of a refusal that can be insisted on. */
const CONFLICT = 409;

export class Acts {
  /** `redraw` shows the page anew, `done` loads it anew. */
  constructor(redraw, done) {
    Object.assign(this, { redraw, done, asked: null, said: null });
  }

  /** Show acts, {key, label, question, run, isForcible}; `run(isForced)`; `subject` tells those of one thing from those of another. */
  view(acts, subject = "") {
    const asked = acts.find((act) => this.asked === `${subject} ${act.key}`);
    return h("div", { class: "acts", key: `acts ${subject}` },
      asked ? this.question(asked) : h("div", { class: "row" }, acts.map((act) => h("button", { type: "button", key: act.key, class: act.question ? "danger" : null, on: { click: () => this.begin(act, subject) } }, act.label))),
      this.said?.subject === subject && h("p", { class: this.said.isBad ? "notice bad" : "notice", role: this.said.isBad ? "alert" : "status", key: "said" }, this.said.text, this.said.insists && [" ", this.insistence(this.said.insists)]));
  }

  insistence(act) {
    return h("button", { type: "button", class: "danger", on: { click: () => this.perform(act, true) } }, t("act.insist"));
  }

  question(act) {
    const refuse = () => ((this.asked = null), this.redraw());
    return h("div", { class: "notice question", role: "group", "aria-label": act.label, on: { keydown: (event) => event.key === "Escape" && refuse() } },
      h("p", {}, act.question), h("button", { type: "button", class: "danger", on: { click: () => this.perform(act) } }, act.label), " ",
      h("button", { type: "button", class: "quiet", on: { click: refuse } }, t("act.no")));
  }

  begin(act, subject) {
    this.subject = subject;
    this.said = null;
    if (!act.question) return this.perform(act);
    this.asked = `${subject} ${act.key}`;
    this.redraw();
    document.querySelector(".question button")?.focus();
  }

  async perform(act, isForced = false) {
    this.asked = null;
    const { subject } = this;
    try {
      const answer = await act.run(isForced);
      this.said = { subject, text: [t("act.done"), ...(answer?.warnings ?? [])].join(" ") };
    } catch (error) {
      this.said = { subject, text: error.record ? error.message : t("problem.unreachable"), isBad: true, insists: act.isForcible && !isForced && error.record?.status === CONFLICT ? act : null };
    }
    this.done();
  }
}
