// What a job used over time: a drawing each for its processors, its memory, its GPUs.
import { get } from "./common/api.js";
import { h } from "./common/dom.js";
import { bytes, fullDate, number, percent } from "./common/format.js";
import { t } from "./common/words.js";

const WIDTH = 600, HEIGHT = 60;
/** Nodes that are drawn one by one, and seconds between two looks at a job that runs. */
const MOST_NODES = 8, PERIOD = 30;

export class JobCurves {
  /** `show` draws the page again. */
  constructor(show) {
    this.show = show;
    this.curves = null;
    this.timer = null;
  }

  /** Read the curves of a job, and again as long as it runs. */
  async renew(id, job) {
    clearTimeout(this.timer);
    if (!job.started) return;
    if (!job.ended) this.timer = setTimeout(() => this.renew(id, job), PERIOD * 1000);
    const former = this.curves;
    try {
      this.curves = await get(`jobs/${id}/curves`, { by_node: job.nodes.length > 1 && job.nodes.length <= MOST_NODES });
    } catch {
      return; // the page itself tells what is wrong
    }
    if (former || this.curves.total) this.show();
  }

  /** Show the curves; nothing of a job that has none. */
  view(job) {
    if (!this.curves?.total) return null;
    const { total, nodes } = this.curves, cores = job.usage.nodes;
    const all = Object.values(cores).reduce((sum, each) => sum + (each.cores ?? 0), 0);
    return h("section", { class: "card", key: "curves" }, h("h2", {}, t("curves.title")), this.drawings(total, all, ""),
      Object.keys(nodes).length > 1 && h("details", { key: "nodes" }, h("summary", {}, t("curves.by_node")),
        Object.entries(nodes).map(([name, curve]) => [h("h3", { key: `${name} name` }, h("bdi", {}, name)), this.drawings(curve, cores[name]?.cores ?? 0, name)])));
  }

  drawings(curve, cores, name) {
    const gpus = curve.gpus;
    return [
      this.drawing(`${name} cpu`, cores ? t("curves.cpu", { cores: number(cores) }) : t("curves.busy"), curve.cpu, cores, (value) => value.toFixed(2)),
      this.drawing(`${name} memory`, t("curves.memory"), curve.memory, 0, bytes),
      gpus > 0 && this.drawing(`${name} gpu`, t("curves.gpu", { gpus: number(gpus) }), curve.gpu, 1, (value) => percent(value, 1)),
      gpus > 0 && this.drawing(`${name} gpu memory`, t("curves.gpu_memory"), curve.gpu_memory, 0, bytes),
    ];
  }

  /** Draw a bar for each step; what was not measured is left out. */
  drawing(key, label, values, all, written) {
    const known = values.filter((value) => value != null);
    if (!known.length) return null;
    const { begin, step } = this.curves, largest = Math.max(...known), last = known[known.length - 1];
    const top = Math.max(all, largest) || 1, width = WIDTH / values.length;
    const words = t("curves.values", { last: written(last), most: written(largest) });
    return h("figure", { key, class: "measured" },
      h("figcaption", {}, h("b", {}, label), " ", h("span", { class: "faint" }, words)),
      h("svg", { class: "chart low", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}: ${words}` },
        values.map((value, place) => value != null && h("rect", { key: place, class: "fill-used", x: place * width, width, y: HEIGHT - (value * HEIGHT) / top, height: (value * HEIGHT) / top },
          h("title", {}, `${fullDate(begin + place * step)}: ${written(value)}`)))),
      h("p", { class: "faint ends" }, h("span", {}, fullDate(begin)), h("span", {}, fullDate(begin + values.length * step))));
  }
}
