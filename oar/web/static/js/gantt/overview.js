// How busy the cluster was and will be around the view, as a strip; the window in it is the view, and is dragged.
import { get } from "../common/api.js";
import { draw, h } from "../common/dom.js";
import { fullDate } from "../common/format.js";
import { t } from "../common/words.js";
import { curve, HEIGHT, WIDTH } from "../occupancy.js";

/** So many times the period of the view are shown; what is nearer to an end than this part of the view asks for others. */
const TIMES = 5, NEAR = 0.25;
/** Parts of the strip; lengths that a part may have, in seconds. */
const PARTS = 240, LENGTHS = [60, 300, 900, 3600, 3 * 3600, 6 * 3600, 86_400, 7 * 86_400];
/** Days of one strip at most. */
const MOST_DAYS = 360, DAY = 86_400;
/** Milliseconds after which it is asked for again, at least: a part of a piece of it, by which it grows unseen. */
const AGE = 60_000, OLD = 1000 / 60;
/** How far a key moves the window, as a part of it. */
const STEP = 0.25;

export class Overview {
  record = null;
  asked = 0;
  isAsking = false;

  /** It is shown in `element`; `move(from)` lets the view begin elsewhere. */
  constructor(element, move) {
    Object.assign(this, { element, move });
    const on = (name, act) => this.element.addEventListener(name, act.bind(this));
    on("pointerdown", this.press), on("pointermove", this.drag), on("keydown", this.key);
  }

  /** Show where the view is; what is told of the period around it is asked for anew where that is old, or does not fit. */
  show({ from, to }) {
    Object.assign(this, { from, to });
    if (this.record) this.place();
    if (!this.isAsking && !this.fits()) this.ask();
  }

  fits() {
    const { record, from, to } = this, span = to - from;
    if (!record || Date.now() - this.asked > Math.max(AGE, record.bucket * OLD)) return false;
    const length = record.to - record.from, isNear = (date) => from - span * NEAR < date && date > 0;
    return length <= TIMES * span * 2 && length >= Math.min(TIMES * span, MOST_DAYS * DAY) / 2 && !isNear(record.from) && to + span * NEAR < record.to;
  }

  async ask() {
    const middle = (this.from + this.to) / 2, length = Math.min(MOST_DAYS * DAY, TIMES * (this.to - this.from));
    const bucket = LENGTHS.find((each) => each * PARTS >= length) ?? LENGTHS.at(-1), whole = (date) => Math.floor(Math.max(0, date) / bucket) * bucket;
    const asked = { from: whole(middle - length / 2), to: whole(middle + length / 2) + bucket, bucket };
    this.isAsking = true;
    const record = await get("gantt/occupancy", asked).catch(() => null);
    this.isAsking = false;
    this.asked = Date.now();
    this.record = record?.resources ? { ...record, to: record.from + record.used.length * record.bucket } : this.record;
    if (this.record) this.draw();
  }

  draw() {
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "slider");
    this.element.setAttribute("aria-label", t("gantt.overview"));
    draw(this.element, h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, curve(this.record), h("rect", { class: "window", y: 0, height: HEIGHT })));
    this.window = this.element.querySelector(".window");
    this.place();
  }

  /** Put the window where the view is. */
  place() {
    const { record, from, to, element, window } = this, x = (date) => (WIDTH * (Math.max(record.from, Math.min(record.to, date)) - record.from)) / (record.to - record.from);
    window.setAttribute("x", x(from));
    window.setAttribute("width", Math.max(0.8, x(to) - x(from)));
    const told = { min: record.from, max: record.to, now: Math.round(from), text: `${fullDate(from).slice(0, 16)} – ${fullDate(to).slice(0, 16)}` };
    for (const [name, value] of Object.entries(told)) element.setAttribute(`aria-value${name}`, value);
  }

  date(event) {
    const box = this.element.getBoundingClientRect();
    return this.record.from + ((event.clientX - box.left) / box.width) * (this.record.to - this.record.from);
  }

  /** Hold the window where it is, else bring its middle to the pointer. */
  press(event) {
    if (!this.record) return;
    const date = this.date(event), isInside = date >= this.from && date <= this.to;
    this.held = isInside ? date - this.from : (this.to - this.from) / 2;
    this.element.setPointerCapture(event.pointerId);
    if (!isInside) this.move(Math.max(0, date - this.held));
  }

  drag(event) {
    if (this.record && event.buttons & 1) this.move(Math.max(0, this.date(event) - this.held));
  }

  key(event) {
    const step = { ArrowLeft: -STEP, ArrowRight: STEP, ArrowDown: -STEP, ArrowUp: STEP, PageUp: 1, PageDown: -1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.move(Math.max(0, this.from + step * (this.to - this.from)));
  }
}
