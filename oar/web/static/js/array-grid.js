// A box for each job of an array, in the colour and with the letter of how it is; ten thousand are one drawing.
import { page } from "./common/site.js";
import { t } from "./common/words.js";

/** Conditions of jobs, with their letters; a colour means the same on every page: blue is in use, red is trouble, violet is reserved and no job. */
export const JOB_CONDITIONS = {
  waiting: { colour: "waiting", mark: "", word: t("array.waiting") },
  hold: { colour: "waiting", mark: "h", word: t("array.hold") },
  launching: { colour: "used", mark: "l", word: t("array.launching") },
  running: { colour: "used", mark: "", word: t("array.running") },
  suspended: { colour: "used", mark: "s", word: t("array.suspended") },
  good: { colour: "done", mark: "✓", word: t("array.good") },
  bad: { colour: "suspected", mark: "!", word: t("array.bad") },
  error: { colour: "dead", mark: "✕", word: t("array.error") },
};
/** Colours that only jobs have. */
const OF_JOBS = ["waiting", "done"];
/** Length of the sides of a box for so many jobs. */
const SIZES = [[400, 24], [2000, 16], [8000, 11], [Infinity, 7]];
/** From this size on a box has room for a letter. */
const LETTERED = 14;

export class ArrayGrid {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.canvas.className = "array-grid";
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", t("array.grid"));
    this.canvas.setAttribute("aria-describedby", "array-says");
    this.chosen = -1;
    this.canvas.addEventListener("pointermove", (event) => this.choose(this.at(event)));
    this.canvas.addEventListener("click", (event) => this.open(this.at(event)));
    this.canvas.addEventListener("keydown", (event) => this.press(event));
    addEventListener("oar:theme", () => this.draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Show an array at a place of the page; `record` is the answer of /v1/arrays. */
  show(place, record) {
    this.says = place.querySelector("#array-says");
    this.marks = record.marks;
    this.letters = record.letters;
    this.ids = record.jobs.flatMap(([first, count]) => Array.from({ length: count }, (_, step) => first + step));
    const room = place.querySelector("#array-place");
    if (this.canvas.parentNode !== room) {
      room.append(this.canvas);
      new ResizeObserver(() => this.draw()).observe(room);
    }
    this.draw();
    if (this.chosen >= 0) this.say();
  }

  draw() {
    const width = this.canvas.parentNode?.clientWidth;
    if (!width || !this.marks) return;
    const size = (this.size = SIZES.find(([most]) => this.marks.length <= most)[1]);
    this.columns = Math.max(1, Math.floor(width / size));
    const height = Math.ceil(this.marks.length / this.columns) * size, ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.setProperty("height", `${height}px`);
    const pen = this.canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    pen.scale(ratio, ratio);
    pen.font = `700 ${size - 7}px ui-sans-serif, system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (const [letter, name] of Object.entries(this.letters)) this.paint(pen, letter, JOB_CONDITIONS[name], colour);
    if (this.chosen < 0) return;
    pen.strokeStyle = colour("mark");
    pen.lineWidth = 2;
    pen.strokeRect(...this.corner(this.chosen), size - 1, size - 1);
  }

  /** Paint all boxes of a condition. */
  paint(pen, letter, { colour: name, mark }, colour) {
    const { size } = this, fill = colour(OF_JOBS.includes(name) ? `job-${name}` : `state-${name}`), line = colour("faint");
    const light = [0.3, 0.59, 0.11].reduce((sum, share, place) => sum + share * parseInt(fill.slice(1 + 2 * place, 3 + 2 * place), 16), 0);
    for (let place = this.marks.indexOf(letter); place >= 0; place = this.marks.indexOf(letter, place + 1)) {
      const [x, y] = this.corner(place);
      pen.fillStyle = fill;
      pen.fillRect(x, y, size - 1, size - 1);
      if (size > 8) (pen.strokeStyle = line), (pen.lineWidth = 0.5), pen.strokeRect(x + 0.5, y + 0.5, size - 2, size - 2);
      if (!mark || size < LETTERED) continue;
      pen.fillStyle = light < 128 ? "#fff" : "#111";
      pen.fillText(mark, x + (size - 1) / 2, y + size / 2);
    }
  }

  corner(place) {
    return [(place % this.columns) * this.size, Math.floor(place / this.columns) * this.size];
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.size), row = Math.floor((event.clientY - box.top) / this.size);
    const place = row * this.columns + column;
    return column < this.columns && place < this.marks.length ? place : -1;
  }

  choose(place) {
    if (place < 0 || place === this.chosen) return;
    this.chosen = place;
    this.draw();
    this.say();
  }

  say() {
    this.says.textContent = `${t("job.job")} ${this.ids[this.chosen]} · ${JOB_CONDITIONS[this.letters[this.marks[this.chosen]]].word}`;
  }

  press(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns, Home: -Infinity, End: Infinity };
    if (event.key in steps) {
      event.preventDefault();
      this.choose(Math.max(0, Math.min(this.marks.length - 1, this.chosen < 0 ? 0 : this.chosen + steps[event.key])));
    } else if (event.key === "Enter") this.open(this.chosen);
  }

  open(place) {
    if (place >= 0) location.assign(page("jobs", this.ids[place]));
  }
}
