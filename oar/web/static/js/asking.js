// A question about what somebody types: asked when he rests, one at a time.
import { refusal } from "./common/outcome.js";

/** Milliseconds after the last key at which the question is asked. */
const PAUSE = 400;
/** Milliseconds after which it is asked again, if the service wants fewer questions, and the status that says so. */
const LATER = 2000, TOO_OFTEN = 429;

export class Asking {
  /** `wishes()` returns what is asked for, null for nothing yet; `ask(wishes)` returns the answer; `redraw` shows what has changed. */
  constructor(wishes, ask, redraw) {
    Object.assign(this, { wishes, ask, redraw, answer: null, trouble: "", isOld: false, isAsking: false, timer: 0 });
  }

  /** Ask in a moment: what is asked for has changed. */
  soon(milliseconds = PAUSE) {
    this.isOld = this.answer !== null;
    this.trouble = "";
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.now(), milliseconds);
  }

  async now() {
    const asked = this.wishes();
    if (asked === null) return;
    if (this.isAsking) return this.soon();
    this.isAsking = true;
    this.redraw();
    try {
      this.answer = await this.ask(asked);
      this.isOld = JSON.stringify(asked) !== JSON.stringify(this.wishes());
    } catch (error) {
      if (error.record?.status === TOO_OFTEN) this.soon(LATER);
      else this.fail(error), (this.answer = null);
    }
    this.isAsking = false;
    this.redraw();
  }

  /** Tell what went wrong. */
  fail(error) {
    this.trouble = refusal(error);
  }
}
