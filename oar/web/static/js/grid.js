// A box for each resource of each node, drawn where the page is looked at: ten thousand nodes scroll as ten do.
import { shortDate } from "./common/format.js";
import { counted, MARKS } from "./common/parts.js";
import { page } from "./common/site.js";
import { t } from "./common/words.js";

/** Boxes of a line at most; the room between nodes; the height of a name and of a heading. */
const PER_LINE = 16, GAP = 10, LABEL = 16, HEADING = 30;
/** Width of a box for so many of them. */
const SIZES = [[160, 44], [600, 18], [6000, 13], [60_000, 9], [Infinity, 6]];
/** Numbers of jobs that have room in a box below each other; the height of one. */
const STACKED = 3, LINE = 13;
/** Pixels within which dragging is a click. */
const CLICK = 4;
/** The part of a turn by which the hues of neighbouring jobs differ: people know the jobs by them from DrawGantt. */
const GOLDEN = 0.618033988749895;

export class Grid {
  /**
   * An element that shows and scrolls; `data` = {groups, letters, jobs, reasons, since, colour, isLarge, selection}: large
   * boxes name their jobs; `reasons`: why nodes are taken away; `since`: when they went out of use; `selection`: the nodes that are chosen, null where none can be.
   */
  constructor(element) {
    this.element = element;
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", t("nodes.grid_label"));
    this.canvas.setAttribute("aria-describedby", "grid-says");
    this.says = document.createElement("p");
    this.says.id = "grid-says";
    this.says.className = "says";
    this.says.setAttribute("role", "status");
    this.says.textContent = t("nodes.grid_hint");
    this.window = document.createElement("div");
    this.window.className = "window";
    this.spacer = document.createElement("div");
    this.spacer.className = "spacer";
    this.window.append(this.spacer, this.canvas);
    element.append(this.window, this.says);
    this.tiles = [];
    this.chosen = -1;
    this.area = null;
    this.window.addEventListener("scroll", () => this.draw());
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.beginArea(event));
    this.canvas.addEventListener("pointerup", (event) => this.endArea(event));
    this.canvas.addEventListener("pointercancel", () => ((this.area = null), this.draw()));
    this.canvas.addEventListener("click", (event) => event.shiftKey || this.open(this.at(event)));
    this.canvas.addEventListener("keydown", (event) => this.press(event));
    new ResizeObserver(() => this.data && this.layOut()).observe(this.window);
    addEventListener("oar:theme", () => this.draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Give every node its place. */
  layOut() {
    const { groups } = this.data;
    const all = groups.flatMap((group) => group.nodes);
    const boxes = all.reduce((sum, node) => sum + node.marks.length, 0);
    const largest = all.reduce((most, node) => Math.max(most, node.marks.length), 1);
    const size = (this.size = this.data.isLarge ? SIZES[0][1] : SIZES.find(([most]) => boxes <= most)[1]);
    const width = Math.max(Math.min(PER_LINE, largest) * size, size > 6 ? 72 : 40);
    const height = Math.ceil(largest / PER_LINE) * size + LABEL;
    this.columns = Math.max(1, Math.floor((this.window.clientWidth - GAP) / (width + GAP)));
    this.headings = [];
    this.tiles = [];
    let top = GAP;
    for (const group of groups) {
      if (group.name) this.headings.push({ top, text: group.name }), (top += HEADING);
      group.nodes.forEach((node, place) => this.tiles.push({
        node, left: GAP + (place % this.columns) * (width + GAP), top: top + Math.floor(place / this.columns) * (height + GAP), width, height,
      }));
      top += Math.ceil(group.nodes.length / this.columns) * (height + GAP);
    }
    this.spacer.style.setProperty("height", `${top}px`);
    this.window.style.setProperty("height", `${Math.min(top, Math.max(240, innerHeight * 0.7))}px`);
    this.chosen = Math.min(this.chosen, this.tiles.length - 1);
    this.draw();
  }

  /** Say anew what is with the node that keys or the pointer are at. */
  tell() {
    if (this.tiles[this.chosen]) this.says.textContent = this.described(this.tiles[this.chosen].node);
  }

  /** Draw what is in sight. */
  draw() {
    if (!this.data) return;
    const { clientWidth: width, clientHeight: height, scrollTop } = this.window;
    const ratio = devicePixelRatio || 1, { canvas } = this;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.setProperty("width", `${width}px`);
      canvas.style.setProperty("height", `${height}px`);
    }
    const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const paint = { ink: colour("ink"), faint: colour("faint"), line: colour("line"), mark: colour("mark"), dark: colour("dark") === "1" };
    for (const condition of Object.values(this.data.letters)) paint[condition] = colour(`state-${condition}`);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.translate(0, -scrollTop);
    pen.font = `600 14px ${style.fontFamily}`;
    pen.fillStyle = paint.ink;
    pen.textBaseline = "top";
    for (const { top, text } of this.headings) if (top + HEADING > scrollTop && top < scrollTop + height) pen.fillText(text, GAP, top + 6);
    const first = this.tiles.findIndex((tile) => tile.top + tile.height > scrollTop);
    for (let place = Math.max(0, first); place < this.tiles.length && this.tiles[place].top < scrollTop + height; place++) {
      this.drawTile(pen, paint, this.tiles[place], place === this.chosen);
      if (this.data.selection?.has(this.tiles[place].node.name)) this.tickTile(pen, paint, this.tiles[place]);
    }
    if (this.area) this.drawArea(pen, paint);
  }

  /** A tick and a frame say that a node is chosen. */
  tickTile(pen, paint, { left, top, width, height }) {
    pen.strokeStyle = paint.ink;
    pen.lineWidth = 3;
    pen.setLineDash([6, 3]);
    pen.strokeRect(left - 2, top - 2, width + 4, height + 3);
    pen.setLineDash([]);
    pen.lineWidth = 1;
    pen.fillStyle = paint.ink;
    pen.font = "700 13px ui-sans-serif, system-ui, sans-serif";
    pen.fillText("✓", left + width - 11, top - 2);
  }

  drawArea(pen, paint) {
    const { left, top, right, bottom } = boundsOf(this.area);
    pen.strokeStyle = paint.mark;
    pen.setLineDash([4, 3]);
    pen.strokeRect(left, top, right - left, bottom - top);
    pen.setLineDash([]);
  }

  /** With Shift a click chooses a node, and dragging those of an area. */
  beginArea(event) {
    if (!event.shiftKey || !this.data?.selection) return;
    event.preventDefault();
    this.canvas.setPointerCapture(event.pointerId);
    const point = this.pointOf(event);
    this.area = { from: point, to: point };
  }

  endArea(event) {
    if (!this.area) return;
    this.area.to = this.pointOf(event);
    const { left, top, right, bottom } = boundsOf(this.area), isClick = right - left < CLICK && bottom - top < CLICK;
    this.area = null;
    const met = this.tiles.filter((tile) => tile.left <= right && tile.left + tile.width >= left && tile.top <= bottom && tile.top + tile.height >= top);
    this.select(met.map((tile) => tile.node.name), isClick);
    this.draw();
  }

  /** Tell which nodes are chosen now; `isToggled`: what was chosen is no longer. */
  select(names, isToggled) {
    this.element.dispatchEvent(new CustomEvent("oar:select", { detail: { names, isToggled } }));
  }

  drawTile(pen, paint, { node, left, top, width, height }, isChosen) {
    const { size } = this, { letters } = this.data;
    pen.font = "11px ui-sans-serif, system-ui, sans-serif";
    pen.fillStyle = paint.ink;
    pen.fillText(shortened(pen, node.name, width), left, top);
    const held = this.data.colour === "state" ? null : this.held(node);
    for (let place = 0; place < node.marks.length; place++) {
      const condition = letters[node.marks[place]];
      const x = left + (place % PER_LINE) * size, y = top + LABEL + Math.floor(place / PER_LINE) * size;
      pen.fillStyle = held?.[place] !== undefined ? hue(held[place], paint.dark) : paint[condition];
      pen.fillRect(x, y, size - 1, size - 1);
      if (size < 9) continue;
      pen.strokeStyle = paint.line;
      pen.strokeRect(x + 0.5, y + 0.5, size - 2, size - 2);
      this.mark(pen, paint, condition, x, y);
    }
    if (size > 40) this.numbers(pen, paint, node, left, top);
    if (isChosen) {
      pen.strokeStyle = paint.mark;
      pen.lineWidth = 2;
      pen.strokeRect(left - 3, top - 3, width + 6, height + 5);
      pen.lineWidth = 1;
    }
  }

  /** Boxes with room for it name their jobs: the first of each job, and all of them as Monika does; jobs that share one stand below each other. */
  numbers(pen, paint, node, left, top) {
    const written = new Map(), { isLarge, colour } = this.data;
    pen.font = "11px ui-sans-serif, system-ui, sans-serif";
    pen.fillStyle = colour === "state" && lightness(paint.used) < 0.4 ? "#fff" : "#111";
    for (const [first, count, job] of node.held) {
      for (let place = first; place < first + (isLarge ? count : 1); place++) {
        const x = left + (place % PER_LINE) * this.size, y = top + LABEL + Math.floor(place / PER_LINE) * this.size, line = written.get(place) ?? 0;
        written.set(place, line + 1);
        if (line < STACKED) pen.fillText(shortened(pen, String(job), this.size - 6), x + 4, y + 4 + LINE * line);
      }
    }
  }

  /** A letter says what the colour says. */
  mark(pen, paint, condition, x, y) {
    const text = MARKS[condition];
    if (!text || this.size < 13) return;
    pen.fillStyle = lightness(paint[condition]) > 0.4 ? "#111" : "#fff";
    pen.font = `700 ${Math.min(14, this.size - 7)}px ui-sans-serif, system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.fillText(text, x + (this.size - 1) / 2, y + 2.5);
    pen.textAlign = "start";
  }

  /** Return for each resource of a node that a job holds what gives it its hue. */
  held(node) {
    const values = [];
    for (const [first, count, job] of node.held) {
      const value = this.data.colour === "job" ? job : spread(this.data.jobs.get(job)?.[this.data.colour] ?? "");
      for (let place = first; place < first + count; place++) values[place] = value;
    }
    return values;
  }

  pointOf(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top + this.window.scrollTop };
  }

  at(event) {
    const { x, y } = this.pointOf(event);
    return this.tiles.findIndex((tile) => x >= tile.left && x <= tile.left + tile.width && y >= tile.top && y <= tile.top + tile.height);
  }

  point(event) {
    if (this.area) return (this.area.to = this.pointOf(event)), this.draw();
    const place = this.at(event);
    this.canvas.classList.toggle("on", place >= 0);
    if (place >= 0 && place !== this.chosen) this.choose(place);
  }

  choose(place) {
    this.chosen = place;
    const tile = this.tiles[place], { scrollTop, clientHeight } = this.window;
    if (tile.top - HEADING < scrollTop) this.window.scrollTop = tile.top - HEADING;
    else if (tile.top + tile.height > scrollTop + clientHeight) this.window.scrollTop = tile.top + tile.height - clientHeight + GAP;
    this.says.textContent = this.described(tile.node);
    this.draw();
  }

  /** Say in a line what is with a node. */
  described(node) {
    const numbers = {}, { letters } = this.data;
    for (const mark of node.marks) numbers[letters[mark]] = (numbers[letters[mark]] ?? 0) + 1;
    const ids = [...new Set(node.held.map(([, , job]) => job))];
    const jobs = ids.slice(0, 5).map((id) => `${id} (${this.data.jobs.get(id)?.user ?? "?"})`);
    const rest = ids.length - jobs.length;
    const isChosen = this.data.selection?.has(node.name);
    const since = this.data.since[node.name];
    return [node.name, since && `${t("node.since")} ${shortDate(since)}`, this.data.reasons[node.name], isChosen && t("maintain.is_chosen"), ...counted(numbers), jobs.length ? `${t("jobs.title")}: ${jobs.join(", ")}${rest ? ` +${rest}` : ""}` : null].filter(Boolean).join(" · ");
  }

  press(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns, Home: -Infinity, End: Infinity };
    if (event.key in steps) {
      event.preventDefault();
      this.choose(Math.max(0, Math.min(this.tiles.length - 1, this.chosen < 0 ? 0 : this.chosen + steps[event.key])));
    } else if (event.key === "Enter") this.open(this.chosen);
    else if (event.key === " " && this.chosen >= 0 && this.data.selection) {
      event.preventDefault();
      this.select([this.tiles[this.chosen].node.name], true);
    }
  }

  open(place) {
    if (place >= 0) location.assign(page("nodes", this.tiles[place].node.name));
  }
}

/** Return the edges of an area that was dragged from a point to another one. */
function boundsOf({ from, to }) {
  return { left: Math.min(from.x, to.x), right: Math.max(from.x, to.x), top: Math.min(from.y, to.y), bottom: Math.max(from.y, to.y) };
}

function shortened(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  const short = text.split(".")[0];
  if (pen.measureText(short).width <= width) return short;
  let end = short.length;
  while (end > 1 && pen.measureText(`${short.slice(0, end)}…`).width > width) end--;
  return `${short.slice(0, end)}…`;
}

/** Return a colour for a job, or for the number that stands for a word. */
function hue(value, isDark) {
  return `hsl(${360 * ((value * GOLDEN) % 1)} 60% ${isDark ? 45 : 68}%)`;
}

/** Return how light a colour of the style sheet is, 0 to 1. */
function lightness(colour) {
  const [red, green, blue] = [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16) / 255);
  return 0.3 * red + 0.59 * green + 0.11 * blue;
}

/** Return a number that stands for a word, the same on every page. */
function spread(word) {
  let sum = 7;
  for (const letter of word) sum = (sum * 31 + letter.codePointAt(0)) % 1_000_003;
  return sum;
}
