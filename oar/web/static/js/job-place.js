// What is on the nodes of a job around its time, small: who had them before, and who waits for them.
import { h } from "./common/dom.js";
import { now } from "./common/site.js";
import { t } from "./common/words.js";
import { strip, stripOf } from "./small-gantt.js";

const HOUR = 3600;

export class JobPlace {
  record = null;
  asked = "";
  isAsking = false;

  /** `show` is called when there is something new to show. */
  constructor(show) {
    this.show = show;
  }

  /** Show the nodes that a job has or had, or those on which it is planned. */
  view(job) {
    const nodes = job.nodes.length ? job.nodes : job.explanation.start?.hosts ?? [], begin = job.started ?? job.planned;
    if (!nodes.length || !begin) return null;
    const end = job.ended ?? begin + (job.walltime || HOUR), margin = Math.max(HOUR, (end - begin) / 2);
    const asked = [job.state, begin, end, nodes].join();
    if (asked !== this.asked) (this.asked = asked), this.ask(nodes, (job.started ? begin : Math.min(now(), begin)) - margin, end + margin);
    if (!this.record && !this.isAsking) return null;
    return h("section", { class: "card", key: "place", "aria-busy": this.isAsking && "true" }, h("h2", {}, t("job.place")), this.record ? strip(this.record, { id: job.id }) : h("p", { class: "faint" }, "…"));
  }

  async ask(nodes, from, to) {
    const { asked } = this;
    this.isAsking = true;
    const record = await stripOf(nodes, Math.max(0, from), to).catch(() => null); // nodes may have been removed since
    if (asked !== this.asked) return;
    Object.assign(this, { record, isAsking: false });
    this.show();
  }
}
