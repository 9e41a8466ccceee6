// Paints a tile of the diagram into pixels: of everything that is smaller than one, as much as it covers.
import { FOR_EVER, PLANNED, RUNNING, visit, word } from "./blocks.js";
import { ofEfficiency, ofJob, ofWord, OUTCOME_COLOURS, parsed, STATE_COLOURS, whole } from "./colours.js";

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
/** Marks a colour that is known: black is one, too. */
const SEEN = 1 << 24;
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
          if (this.hasRoom(from, to, top, bottom)) this.names.push([`AR ${id}`, from, to, top, bottom, name ?? "", true]);
        }
        for (const [top, bottom] of lost) this.fill(from, to, top, bottom, look.suspected, PATTERN.Suspected | EDGE);
      }
    }
  }

  jobs(scene, areContainers) {
    for (const block of scene.blocks) {
      if (areContainers && !containersOf(block).some(Boolean)) continue;
      const containers = containersOf(block), pauses = (block.pausesOf ??= paused(block)), rgb = coloursOf(block, scene.look);
      visit(block, this.from, this.to, this.place.top, this.below, (job, top, bottom) => {
        if (containers[block.types[job]] !== areContainers) return;
        this.job(scene, block, job, top, bottom, rgb);
        if (pauses.size) for (const [from, to] of pauses.get(block.id[job]) ?? []) this.fill(from, Math.min(to, scene.now), top, bottom, this.last, PAUSE);
      });
    }
  }

  job({ wanted, look, now }, block, job, top, bottom, rgb) {
    const isWanted = !wanted || wanted(block, job), phase = block.phase[job], begin = block.begin[job], end = block.end[job];
    const colour = (this.last = isWanted ? (rgb[job] ||= SEEN | colourOf(block, job, look)) & ~SEEN : look.faint);
    const faint = (isWanted ? 0 : FAINT) | (containersOf(block)[block.types[job]] ? FAINT | EDGE : 0);
    if (phase === PLANNED) this.fill(begin, end, top, bottom, colour, PLAN | faint);
    else if (phase === RUNNING) {
      this.fill(begin, Math.max(now, begin), top, bottom, colour, faint);
      if (end > now && end < FOR_EVER) this.fill(Math.max(now, begin), end, top, bottom, colour, REST | faint);
    } else this.fill(begin, end, top, bottom, colour, faint);
    const until = phase === RUNNING && end >= FOR_EVER ? now : end;
    if (this.hasRoom(begin, until, top, bottom)) this.names.push([block.id[job], begin, until, top, bottom, [word(block, "name", job), word(block, "user", job)].filter(Boolean).join(" · "), false]);
  }

  /** Whether a box has room for its number, and is in sight. */
  hasRoom(begin, end, top, bottom) {
    const { scale, unit, top: above } = this.place;
    return (end - begin) / scale >= NAMED_WIDTH && (bottom - top) * unit >= NAMED_HEIGHT && begin < this.to && end > this.from && top < this.below && bottom > above;
  }
}

/** What layers of tiles of a size are made in, one after the other; between them nothing is covered, and no part of a line touched. */
let sheet = null;

function blank(width, height) {
  const size = width * height;
  return {
    width, height, cover: new Float32Array(size), most: new Float32Array(size), colours: new Uint32Array(size), marks: new Uint16Array(size),
    begins: new Int32Array(height).fill(width), ends: new Int32Array(height), // of the part of each line that was touched
  };
}

/** A tile: pixels, and the boxes in it that have room for a name. */
export class Tile extends Painter {
  constructor(width, height) {
    super(width, height);
    this.pixels = new ImageData(width, height);
    if (sheet?.width !== width || sheet.height !== height) sheet = blank(width, height);
    Object.assign(this, sheet);
  }

  layer(fill) {
    this.isTouched = false;
    fill();
    if (this.isTouched) this.compose();
  }

  /** Cover a box; where nothing before covered as much, it is seen. */
  fill(begin, end, top, bottom, colour, marks) {
    const { from, scale, top: above, unit } = this.place;
    const left = (begin - from) / scale, right = Math.max((end - from) / scale, left + NARROWEST);
    const high = (top - above) * unit, low = (bottom - above) * unit;
    const x0 = Math.max(0, left), x1 = Math.min(this.width, right), y0 = Math.max(0, high), y1 = Math.min(this.height, low);
    if (x1 <= x0 || y1 <= y0) return;
    this.isTouched = true;
    const isBordered = marks & EDGE || (right - left >= BORDERED && low - high >= BORDERED), inner = marks & ~EDGE;
    const first = Math.floor(x0), last = Math.ceil(x1) - 1, line = Math.floor(y0), lastLine = Math.ceil(y1) - 1;
    const sideOf = (x) => (isBordered && (x === Math.floor(left) || x === Math.ceil(right) - 1) ? EDGE : 0);
    const firstMarks = inner | sideOf(first), lastMarks = inner | sideOf(last);
    const firstShare = Math.min(first + 1, x1) - x0, lastShare = x1 - last;
    for (let y = line; y <= lastLine; y++) {
      const tall = Math.min(y + 1, y1) - Math.max(y, y0), at = y * this.width;
      const edge = isBordered && (y === Math.floor(high) || y === Math.ceil(low) - 1) ? EDGE : 0;
      if (first < this.begins[y]) this.begins[y] = first;
      if (last >= this.ends[y]) this.ends[y] = last + 1;
      this.cells(at + first, at + first + 1, tall * firstShare, colour, firstMarks | edge);
      if (last > first) this.cells(at + last, at + last + 1, tall * lastShare, colour, lastMarks | edge);
      if (last > first + 1) this.cells(at + first + 1, at + last, tall, colour, inner | edge);
    }
  }

  /** Cover a share of each pixel between two. */
  cells(from, to, share, colour, marks) {
    const { cover, most, colours, marks: all } = this, above = marks & PAUSE ? 0 : SHARED, isWhole = share > 0.99;
    for (let at = from; at < to; at++) {
      const before = cover[at];
      cover[at] = before + share;
      if (share < most[at]) continue;
      most[at] = share;
      colours[at] = colour;
      all[at] = isWhole && before > 0.99 ? marks | above : marks;
    }
  }

  /** Lay what was covered over what is there; line by line, so that the compiler's work is used from the next one on. */
  compose() {
    const { begins, ends, width, cover, most } = this;
    this.words ??= new Uint32Array(this.pixels.data.buffer);
    for (let y = 0; y < this.height; y++) {
      const begin = begins[y], end = ends[y], start = y * width;
      if (end <= begin) continue;
      this.composeLine(y, start, begin, end);
      for (const each of [cover, most]) each.fill(0, start + begin, start + end); // colours and marks are those of what covers
      begins[y] = width;
      ends[y] = 0;
    }
  }

  composeLine(y, start, begin, end) {
    const { cover, colours, marks, words: pixels } = this;
    let last = -1, ordered = 0;
    for (let x = begin, at = start + begin; x < end; x++, at++) {
      const covered = cover[at];
      if (covered === 0) continue;
      const mark = marks[at], colour = (mark & (EDGE | FAINT)) === EDGE ? darker(colours[at]) : colours[at];
      const plain = covered >= 1 ? 1 : covered < LEAST ? LEAST : covered, share = mark === 0 ? plain : plain * strength(mark, x, y);
      if (share < 1 && pixels[at] !== 0) {
        this.blend(4 * at, colour >> 16, (colour >> 8) & 255, colour & 255, share);
        continue;
      }
      if (colour !== last) (last = colour), (ordered = inOrder(colour)); // neighbours have the same one
      pixels[at] = ordered | ((255 * share) << ALPHA);
    }
  }

  /** Lay a colour over that of a pixel. */
  blend(to, red, green, blue, share) {
    const { data } = this.pixels, under = (data[to + 3] / 255) * (1 - share), all = share + under;
    data[to] = (red * share + data[to] * under) / all;
    data[to + 1] = (green * share + data[to + 1] * under) / all;
    data[to + 2] = (blue * share + data[to + 2] * under) / all;
    data[to + 3] = 255 * all;
  }
}

/** How a pixel is a word of this machine: where its opacity begins, and its colour. */
const IS_LITTLE = new Uint8Array(Uint32Array.of(1).buffer)[0] === 1, ALPHA = IS_LITTLE ? 24 : 0;
function inOrder(colour) {
  return IS_LITTLE ? ((colour & 255) << 16) | (colour & 0xff00) | (colour >> 16) : colour << 8;
}

function darker(colour) {
  return (((colour >> 16) * 0.66) << 16) | ((((colour >> 8) & 255) * 0.66) << 8) | ((colour & 255) * 0.66);
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

/** Return for each set of types whether it makes a job a container. */
function containersOf(block) {
  return (block.containers ??= block.words.types.map((types) => / container\b/.test(` ${types}`)));
}

/** Return the colours of the jobs of a block as far as they are known, 0: not yet. */
function coloursOf(block, look) {
  if (block.colouredFor !== look) (block.colouredFor = look), (block.rgb = new Uint32Array(block.jobs));
  return block.rgb;
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
  if (look.by === "job") return whole(ofJob(block.id[job], look.isDark));
  if (look.by === "mine") return word(block, "user", job) === look.user ? whole(ofJob(block.id[job], look.isDark)) : look.faint;
  const told = word(block, look.by, job);
  if (look.by === "efficiency") return ofEfficiency(told) ?? look.faint;
  if (look.by === "outcome") return look[OUTCOME_COLOURS[told] ?? "used"];
  return look.by === "state" ? look[STATE_COLOURS[told] ?? "used"] : whole(ofWord(told));
}

/** Return the colours of the style sheet as the painter wants them. */
export function lookOf({ by, isDark, colours, user }) {
  return { by, isDark, user, ...Object.fromEntries(Object.entries(colours).map(([name, colour]) => [name, whole(parsed(colour))])) };
}
