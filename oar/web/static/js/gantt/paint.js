// Paints a tile of the diagram into pixels: of everything that is smaller than one, as much as it covers.
import { FOR_EVER, PLANNED, RUNNING, visit, word } from "./blocks.js";
import { ofJob, ofWord, parsed, STATE_COLOURS } from "./colours.js";

/** How a pixel is drawn, beside its colour. */
const EDGE = 1, PLAN = 2, REST = 4, PAUSE = 8, FAINT = 16, SHARED = 32;
const PATTERN = { Absent: 64, Suspected: 128, Dead: 256 };
/** The same by the names of patterns, the strongest first. */
export const MARKS = { absent: PATTERN.Absent, suspected: PATTERN.Suspected, dead: PATTERN.Dead, faint: FAINT, plan: PLAN, rest: REST, pause: PAUSE };
const STATES = { Absent: "absent", Suspected: "suspected", Dead: "dead" };
/** A job has this width at least, in pixels: it is seen. */
const NARROWEST = 0.7;
/** What is there is seen, however little it covers. */
const LEAST = 0.22;
/** Boxes of so many pixels and more have a border; of so many a name. */
const BORDERED = 4, NAMED_WIDTH = 40, NAMED_HEIGHT = 11;

/** Finds what is in a place, and where; `layer(fill)` and `fill(...)` of those that extend it paint it. */
export class Painter {
  constructor(width, height) {
    Object.assign(this, { width, height });
  }

  /** Paint what `scene` = {blocks, wanted, look, now} has in `place` = {from, scale (seconds of a pixel), top, unit (pixels of a row)}. */
  paint(scene, place) {
    this.place = place;
    this.names = [];
    this.from = place.from;
    this.to = place.from + this.width * place.scale;
    this.below = place.top + this.height / place.unit;
    this.layer(() => this.states(scene));
    this.layer(() => this.frames(scene));
    this.layer(() => this.jobs(scene, true));
    this.layer(() => this.jobs(scene, false));
  }

  states({ blocks, look }) {
    for (const block of blocks) {
      const { begin, end, state } = block.states, { of, top, bottom } = block.stateSpans;
      if (block.earliest >= this.to || block.latest <= this.from) continue;
      for (let span = 0; span < of.length; span++) {
        const each = of[span];
        if (begin[each] >= this.to || end[each] <= this.from || top[span] >= this.below || bottom[span] <= this.place.top) continue;
        const name = block.words.states[state[each]];
        this.fill(begin[each], end[each], top[span], bottom[span], look[STATES[name]] ?? look.absent, PATTERN[name] ?? PATTERN.Absent);
      }
    }
  }

  frames({ blocks, look }) {
    for (const block of blocks) {
      for (const { id, name, from, to, pieces, lost } of block.frames ?? []) {
        for (const [top, bottom] of pieces) {
          this.fill(from, to, top, bottom, look.reserved, FAINT | EDGE);
          this.name(`AR ${id}`, from, to, top, bottom, () => name ?? "", true);
        }
        for (const [top, bottom] of lost) this.fill(from, to, top, bottom, look.suspected, PATTERN.Suspected | EDGE);
      }
    }
  }

  jobs(scene, areContainers) {
    for (const block of scene.blocks) {
      const pauses = (block.pausesOf ??= paused(block));
      visit(block, this.from, this.to, this.place.top, this.below, (job, top, bottom) => {
        if (isContainer(block, job) !== areContainers) return;
        this.job(scene, block, job, top, bottom);
        for (const [from, to] of pauses.get(block.id[job]) ?? []) this.fill(from, Math.min(to, scene.now), top, bottom, this.last, PAUSE);
      });
    }
  }

  job({ wanted, look, now }, block, job, top, bottom) {
    const isWanted = wanted(block, job), phase = block.phase[job], begin = block.begin[job], end = block.end[job];
    const colour = (this.last = isWanted ? colourOf(block, job, look) : look.faint);
    const faint = (isWanted ? 0 : FAINT) | (isContainer(block, job) ? FAINT | EDGE : 0);
    if (phase === PLANNED) this.fill(begin, end, top, bottom, colour, PLAN | faint);
    else if (phase === RUNNING) {
      this.fill(begin, Math.max(now, begin), top, bottom, colour, faint);
      if (end > now && end < FOR_EVER) this.fill(Math.max(now, begin), end, top, bottom, colour, REST | faint);
    } else this.fill(begin, end, top, bottom, colour, faint);
    this.name(block.id[job], begin, phase === RUNNING && end >= FOR_EVER ? now : end, top, bottom, () => [word(block, "name", job), word(block, "user", job)].filter(Boolean).join(" · "));
  }

  /** Note a box that has room for its number; `text()` is what else is told of it, `isFrame` whether it is an outline round others. */
  name(id, begin, end, top, bottom, text, isFrame = false) {
    const { scale, unit } = this.place;
    if ((end - begin) / scale < NAMED_WIDTH || (bottom - top) * unit < NAMED_HEIGHT) return;
    if (begin >= this.to || end <= this.from || top >= this.below || bottom <= this.place.top) return;
    this.names.push([id, begin, end, top, bottom, text(), isFrame]);
  }
}

/** What layers of tiles of a size are made in, one after the other; all of it is zero between them. */
let sheet = null;

/** A tile: pixels, and the boxes in it that have room for a name. */
export class Tile extends Painter {
  constructor(width, height) {
    super(width, height);
    this.pixels = new ImageData(width, height);
    const size = width * height;
    if (sheet?.cover.length !== size) sheet = { cover: new Float32Array(size), most: new Float32Array(size), colour: new Uint32Array(size), marks: new Uint16Array(size) };
    Object.assign(this, sheet);
  }

  layer(fill) {
    this.isTouched = false;
    fill();
    if (!this.isTouched) return;
    this.compose();
    for (const each of [this.cover, this.most, this.colour, this.marks]) each.fill(0);
  }

  /** Cover a box; where nothing before covered as much, it is seen. */
  fill(begin, end, top, bottom, colour, marks) {
    const { from, scale, top: above, unit } = this.place;
    let left = (begin - from) / scale, right = (end - from) / scale;
    if (right - left < NARROWEST) right = left + NARROWEST;
    const high = (top - above) * unit, low = (bottom - above) * unit;
    const x0 = Math.max(0, left), x1 = Math.min(this.width, right), y0 = Math.max(0, high), y1 = Math.min(this.height, low);
    if (x1 <= x0 || y1 <= y0) return;
    this.isTouched = true;
    const isBordered = marks & EDGE || (right - left >= BORDERED && low - high >= BORDERED);
    const firstX = Math.floor(x0), lastX = Math.ceil(x1) - 1, firstY = Math.floor(y0), lastY = Math.ceil(y1) - 1;
    for (let y = firstY; y <= lastY; y++) {
      const tall = Math.min(y + 1, y1) - Math.max(y, y0);
      const isEdge = isBordered && (y === Math.floor(high) || y === Math.ceil(low) - 1);
      for (let x = firstX, at = y * this.width + firstX; x <= lastX; x++, at++) {
        const share = tall * (x === firstX || x === lastX ? Math.min(x + 1, x1) - Math.max(x, x0) : 1);
        const isShared = this.cover[at] > 0.99 && share > 0.99 && !(marks & PAUSE);
        this.cover[at] += share;
        if (share < this.most[at]) continue;
        this.most[at] = share;
        this.colour[at] = (colour[0] << 16) | (colour[1] << 8) | colour[2];
        const isSide = isBordered && (x === Math.floor(left) || x === Math.ceil(right) - 1);
        this.marks[at] = marks & ~EDGE | (isEdge || isSide ? EDGE : 0) | (isShared ? SHARED : 0);
      }
    }
  }

  /** Lay what was covered over what is there. */
  compose() {
    const { data } = this.pixels, { cover, colour, marks, width } = this;
    for (let at = 0, to = 0; at < cover.length; at++, to += 4) {
      if (!cover[at]) continue;
      const share = Math.max(LEAST, Math.min(1, cover[at])) * strength(marks[at], at % width, (at / width) | 0);
      const under = data[to + 3] / 255 * (1 - share), all = share + under, dark = marks[at] & EDGE && !(marks[at] & FAINT) ? 0.66 : 1;
      for (let part = 0, shift = 16; part < 3; part++, shift -= 8) {
        data[to + part] = (((colour[at] >> shift) & 255) * dark * share + data[to + part] * under) / all;
      }
      data[to + 3] = 255 * all;
    }
  }
}

/** Return how strong a pixel is: patterns tell what colours alone do not. */
function strength(marks, x, y) {
  const slope = (x + y) & 7;
  if (marks & EDGE) return marks & PLAN ? ((x + y) & 3) < 2 ? 0.95 : 0.3 : 0.95;
  if (marks & FAINT) return 0.13;
  if (marks & PLAN) return slope < 3 ? 0.62 : 0.26;
  if (marks & REST) return slope < 2 ? 0.75 : 0.42;
  if (marks & PAUSE) return (y & 3) < 2 ? 0.9 : 0.15;
  if (marks & SHARED) return ((x - y) & 7) < 3 ? 0.55 : 0.95;
  if (marks & PATTERN.Suspected) return ((x - y) & 7) < 4 ? 0.75 : 0.2;
  if (marks & PATTERN.Dead) return slope < 2 || ((x - y) & 7) < 2 ? 0.9 : 0.35;
  if (marks & PATTERN.Absent) return (x & 3) < 2 && (y & 3) < 2 ? 0.8 : 0.22;
  return 1;
}

function isContainer(block, job) {
  return (block.containers ??= block.words.types.map((types) => / container\b/.test(` ${types}`)))[block.types[job]];
}

function paused({ pauses }) {
  const found = new Map();
  for (let each = 0; each < pauses.job.length; each++) {
    const of = pauses.job[each];
    found.set(of, [...(found.get(of) ?? []), [pauses.begin[each], pauses.end[each]]]);
  }
  return found;
}

function colourOf(block, job, look) {
  if (look.by === "job") return ofJob(block.id[job], look.isDark);
  const told = word(block, look.by, job);
  return look.by === "state" ? look[STATE_COLOURS[told] ?? "used"] : ofWord(told);
}

/** Return the colours of the style sheet as the painter wants them. */
export function lookOf({ by, isDark, colours }) {
  return { by, isDark, ...Object.fromEntries(Object.entries(colours).map(([name, colour]) => [name, parsed(colour)])) };
}
