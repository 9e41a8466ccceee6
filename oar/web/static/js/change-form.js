// A form by which somebody changes something that is there: what differs is sent, and it is told what came of it.
import { h } from "./common/dom.js";
import { t } from "./common/words.js";

export class ChangeForm {
  /** `redraw` shows the page anew, `done` loads it anew. */
  constructor(redraw, done) {
    Object.assign(this, { redraw, done, changes: {}, said: null, isSending: false });
  }

  /** Take what somebody types. */
  alter(changes) {
    Object.assign(this.changes, changes);
    this.redraw();
  }

  /** Send what is asked for, once however often the button is pressed. */
  async send(event, request) {
    event.preventDefault();
    if (this.isSending) return;
    this.isSending = true;
    this.redraw();
    try {
      const answer = await request();
      this.said = { text: [t("act.done"), answer.message, answer.done, ...answer.warnings].filter(Boolean).join(" ") };
      this.changes = {};
    } catch (error) {
      this.said = { text: error.record ? [error.message, error.record.hint, error.record.output].filter(Boolean).join(" ") : t("problem.unreachable"), isBad: true };
    }
    this.isSending = false;
    this.done();
  }

  /** Show what came of it. */
  answer() {
    return this.said && h("p", { key: "said", class: this.said.isBad ? "notice bad" : "notice", role: this.said.isBad ? "alert" : "status" }, h("bdi", {}, this.said.text));
  }
}
