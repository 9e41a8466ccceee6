// What would let a job that waits start now: asked when somebody wants to know, since it takes a plan.
import { get } from "./common/api.js";
import { h } from "./common/dom.js";
import { refusal } from "./common/outcome.js";
import { t } from "./common/words.js";

export class SmallestChange {
  constructor(id, redraw) {
    Object.assign(this, { id, redraw, said: "", isAsking: false });
  }

  view() {
    return h("p", { key: "change" },
      h("button", { type: "button", class: "quiet", disabled: this.isAsking, on: { click: () => this.ask() } }, t("change.ask")), " ",
      h("span", { role: "status" }, this.isAsking ? t("submit.asking") : this.said));
  }

  async ask() {
    this.isAsking = true;
    this.redraw();
    try {
      this.said = answered(await get(`jobs/${this.id}/explanation`, { change: true }));
    } catch (error) {
      this.said = refusal(error);
    }
    this.isAsking = false;
    this.redraw();
  }
}

function answered(told) {
  if (told.smallest_change) return t("change.with", { change: told.smallest_change });
  return told.smallest_change_known === false ? t("change.no_time") : t("change.none");
}
