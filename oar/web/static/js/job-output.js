// What a job writes, as it writes it.
import { get } from "./common/api.js";
import { h } from "./common/dom.js";
import { bytes } from "./common/format.js";
import { refusal } from "./common/outcome.js";
import { site } from "./common/site.js";
import { t } from "./common/words.js";

/** Milliseconds between two looks; lines that are shown at first; characters that are kept. */
const PAUSE = 2000, FIRST = 200, KEPT = 200_000;
/** What colours a terminal and moves its cursor. */
const ESCAPES = /\u001b\[[0-9;?]*[ -/]*[@-~]/g;
const STREAMS = ["stdout", "stderr"];

/** The output of a job; `redraw` shows it anew. */
export class JobOutput {
  constructor(id, redraw) {
    Object.assign(this, { id, redraw, stream: "stdout", follows: true, timer: 0 });
    this.forget();
  }

  forget() {
    Object.assign(this, { text: "", next: null, size: 0, isComplete: false, trouble: "", decoder: new TextDecoder() });
  }

  address(parameters) {
    return new URL(`v1/jobs/${this.id}/output/${this.stream}?${new URLSearchParams(parameters)}`, site.root);
  }

  /** Look whether there is more; again and again while more may come. */
  async look() {
    clearTimeout(this.timer);
    const { stream } = this;
    try {
      if (!document.hidden) await this.read();
    } catch {
      this.trouble = t("problem.unreachable");
    }
    if (stream !== this.stream) return;
    this.redraw();
    if (!this.isComplete) this.timer = setTimeout(() => this.look(), PAUSE);
  }

  async read() {
    const { stream } = this;
    if (this.next === null && !(await this.isThere(stream))) return;
    const answer = await fetch(this.address(this.next === null ? { tail: FIRST } : { offset: this.next }), { cache: "no-store" });
    if (stream !== this.stream) return;
    if (!answer.ok) {
      const record = await answer.json().catch(() => null);
      return void (this.trouble = record?.detail ?? answer.statusText);
    }
    const data = await answer.arrayBuffer(), header = (name) => answer.headers.get(`X-OAR-${name}`);
    this.trouble = "";
    this.size = Number(header("Size"));
    if (this.next !== null && this.size < this.next) return this.forget(); // it was written anew
    this.next = Number(header("Offset")) + data.byteLength;
    this.isComplete = header("Complete") === "yes" && this.next >= this.size;
    this.text = (this.text + this.decoder.decode(data, { stream: true }).replace(ESCAPES, "")).slice(-KEPT);
  }

  /** Whether the file can be read; what is asked for before it is there would be an error. */
  async isThere(stream) {
    const record = await get(`jobs/${this.id}/output`).catch((error) => ({ complete: true, [stream]: { size: null, problem: refusal(error) } }));
    if (stream !== this.stream) return false;
    this.trouble = record[stream].problem ?? "";
    this.isComplete = record.complete;
    return record[stream].size !== null;
  }

  choose(stream) {
    this.stream = stream;
    this.forget();
    this.look();
  }

  /** Open a stream, and bring it into sight. */
  open(stream) {
    if (stream !== this.stream) this.choose(stream);
    document.querySelector("#output, .output-card")?.scrollIntoView({ block: "nearest" });
  }

  /** Show a text in which the names of the files of the job open them. */
  linked(text) {
    return text.split(/(\S*\bstd(?:out|err)\b)/).map((part, place) => place % 2 ? h("button", { type: "button", class: "link", key: place, on: { click: () => this.open(part.endsWith("err") ? "stderr" : "stdout") } }, part) : part);
  }

  view() {
    const chosen = (name) => h("button", { type: "button", key: name, class: "chip", "aria-pressed": String(name === this.stream), on: { click: () => this.choose(name) } }, name);
    return h("section", { class: "card output-card", key: "output" }, h("h2", {}, t("job.output")),
      h("div", { class: "row" }, STREAMS.map(chosen), h("label", { key: "follow" }, h("input", { type: "checkbox", checked: this.follows, on: { change: (event) => ((this.follows = event.target.checked), this.scroll()) } }), ` ${t("job.follow")}`),
        h("span", { class: "faint" }, bytes(this.size)), h("a", { href: this.address({}).href, download: `job-${this.id}.${this.stream}` }, t("job.download"))),
      this.trouble ? h("p", { class: "faint" }, h("bdi", {}, this.trouble)) : h("pre", { class: "output", id: "output", tabindex: "0", "aria-label": this.stream }, this.text || (this.isComplete ? t("job.nothing_written") : t("job.no_output"))));
  }

  /** Show the end of it, for who follows. */
  scroll() {
    const place = document.getElementById("output");
    if (place && this.follows) place.scrollTop = place.scrollHeight;
  }
}
