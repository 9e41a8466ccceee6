// A form by which somebody changes something that is there: what differs is sent, and it is told what came of it.
import { notice, outcome } from "./common/outcome.js";

export class ChangeForm {
  /** `redraw` shows the page anew, `done` loads it anew. */
  constructor(redraw, done) {
    Object.assign(this, { redraw, done, changes: {}, told: null, isSending: false });
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
    this.told = await outcome(request);
    if (!this.told.isBad) this.changes = {};
    this.isSending = false;
    this.done();
  }

  /** Show what came of it. */
  answer() {
    return notice(this.told);
  }
}
