// The diagram as it is seen: tiles of the worker, rows, dates, and what eyes and hands do with them.
import { now } from "../common/site.js";
import { corner, dates } from "./ruler.js";

/** Room for names of rows and for dates; on narrow screens less. */
const NAMES = 132, NAMES_NARROW = 74, RULER = 26, GROUP = 12;
/** The part of the width that names take at most, however long they are. */
const MOST_NAMES = 0.4;
/** Length of the head of an arrow. */
const ARROW = 8;
/** Pixels of a letter, about. */
const LETTER = 6.3;
/** About so large is a tile. */
const TILE_WIDTH = 512, TILE_HEIGHT = 256;
/** What is nearer than this part of a tile is no place beside it. */
const NEAR = 1e-6;
/** Tiles that are kept. */
const KEPT = 140;
/** Seconds in sight; pixels of a row. */
const SHORTEST = 300, LONGEST = 86_400 * 366 * 3, LOWEST = 0.02, HIGHEST = 64, COMFORTABLE = 22;
/** How far a key moves, as a part of what is seen; how much it enlarges. */
const STEP = 1 / 8, ZOOM = Math.SQRT2;
/** From this height on rows have a name and a line. */
const NAMED = 11, LINED = 6;
/** Milliseconds for which tiles wait for others, to be shown together. */
const TOGETHER = 100;
/** Seconds after which what goes on has grown and is painted anew, at least. */
const GROWING = 10;

export class View {
  /** `engine` paints; `told` = {moved(), chosen(hit), opened(id), folded(group), selected(area)} is called. */
  constructor(canvas, engine, told) {
    Object.assign(this, { canvas, engine, told, from: 0, span: 86_400, top: 0, unit: 10, width: 0, height: 0, isFitted: true, rows: [], groups: [], longest: 0, groupRoom: 0 });
    this.tiles = new Map();
    this.former = [];
    this.asked = new Set();
    this.generation = 0;
    this.isComplete = false;
    this.boxes = [];
    this.arrows = [];
    this.under = []; // what else is drawn, below the jobs and over them
    this.over = [];
    this.isNamed = true; // whether jobs have their names on them
    this.script = [];
    this.touches = new Map();
    this.pen = canvas.getContext("2d");
    const on = (name, act, options) => canvas.addEventListener(name, act.bind(this), options);
    on("pointerdown", this.press), on("pointermove", this.point), on("pointerup", this.release), on("pointercancel", this.cancel);
    on("wheel", this.wheel, { passive: false });
    on("keydown", this.key), on("dblclick", this.open), on("pointerleave", this.leave);
    new ResizeObserver(() => this.resize()).observe(canvas.parentElement);
    for (const [target, name] of [[globalThis, "oar:theme"], [matchMedia("(prefers-color-scheme: dark)"), "change"]]) target.addEventListener(name, () => (this.style(), told.restyled()));
    setInterval(() => this.draw(), 1000);
    this.style();
  }

  /** Room for the names of rows: all of the longest one is seen, unless it is very long. */
  get left() {
    const least = this.width < 600 ? NAMES_NARROW : NAMES;
    return Math.max(least, Math.min(this.longest, Math.floor(this.width * MOST_NAMES)));
  }

  get to() {
    return this.from + this.span;
  }

  /** Seconds of a pixel. */
  get scale() {
    return this.span / Math.max(1, this.width - this.left);
  }

  get bottom() {
    return this.top + (this.height - RULER) / this.unit;
  }

  style() {
    this.choose();
    this.renew();
  }

  /** Take the colours of the style sheet. */
  choose() {
    const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(`--${name}`).trim();
    this.paint = Object.fromEntries(["ink", "faint", "line", "card", "mark", "focus", "state-reserved"].map((name) => [name, colour(name)]));
    this.font = style.fontFamily;
  }

  resize() {
    const ratio = devicePixelRatio || 1, { clientWidth: width, clientHeight: height } = this.canvas.parentElement;
    if (width === this.width && height === this.height && ratio === this.ratio) return;
    this.width = width;
    this.height = height;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.ratio = ratio;
    this.fit();
    this.renew();
  }

  /** Let the worker begin with what the next picture of the screen will show. */
  hurry() {
    this.resize();
    if (this.width && this.rows.length) this.want();
  }

  /** Show a period. */
  show(from, to) {
    this.span = Math.min(LONGEST, Math.max(SHORTEST, to - from));
    this.from = Math.max(0, from);
    this.renew();
  }

  /** Take rows. */
  setRows({ rows, groups }) {
    Object.assign(this, { rows, groups });
    const widest = (names) => names.reduce((most, name) => Math.max(most, name.length), 0) * LETTER;
    this.groupRoom = groups.length ? Math.ceil(widest(groups.map((group) => group.name))) + 24 : 0;
    this.longest = this.groupRoom + Math.ceil(widest(rows.filter((row) => !row.isFolded).map((row) => row.label))) + 2 * GROUP;
    this.fit();
    this.renew();
  }

  /** Give all rows the same place on the screen, unless somebody has chosen their height. */
  fit() {
    if (!this.height || !this.rows.length) return;
    if (this.isFitted) this.unit = Math.min(COMFORTABLE, Math.max(LOWEST, (this.height - RULER) / this.rows.length));
    const above = this.rows.length - (this.height - RULER) / this.unit;
    this.top = Math.max(0, Math.min(this.top, above));
    this.canvas.style.setProperty("touch-action", above <= 0 ? "pan-y" : "none"); // where all rows are in sight a finger scrolls the page
  }

  /** What the tiles show is old: they stay until there are new ones. */
  renew() {
    this.generation += 1;
    const fresh = [...this.tiles.values()].filter((tile) => tile.picture);
    const all = this.isComplete ? fresh : [...this.former, ...fresh];
    if (this.isComplete) this.forget();
    for (const tile of all.slice(0, -KEPT)) tile.picture.close();
    this.former = all.slice(-KEPT);
    this.isComplete = false;
    this.tiles.clear();
    this.asked.clear();
    this.grid = null;
    this.draw();
  }

  /** Return how tiles lie: the first begins where the view does when it is drawn anew, and a number of them fills it. */
  laid() {
    const { ratio = 1, from, top, unit } = this, wide = (this.width - this.left) * ratio, tall = Math.min(this.height - RULER, (this.rows.length - top) * unit) * ratio;
    const parts = (length, each) => Math.max(1, Math.ceil(length / Math.max(1, Math.round(length / (each * ratio)))));
    const width = parts(wide, TILE_WIDTH), height = parts(tall, TILE_HEIGHT);
    return { from, top, width, height, long: (width / ratio) * this.scale, tall: height / ratio / unit };
  }

  isSeen(tile) {
    return tile.from < this.to && tile.from + tile.width * tile.scale > this.from && tile.top < this.bottom && tile.top + tile.height / tile.unit > this.top;
  }

  /** Return where tiles are wanted, those in the middle first. */
  places() {
    const found = [], ratio = this.ratio || 1, { from, top, width, height, long, tall } = (this.grid ??= this.laid());
    const isBefore = (place, size, end) => place + NEAR * size < end;
    for (let column = Math.floor((this.from - from) / long + NEAR); isBefore(from + column * long, long, this.to); column++) {
      for (let line = Math.floor((this.top - top) / tall + NEAR); isBefore(top + line * tall, tall, Math.min(this.bottom, this.rows.length)); line++) {
        found.push({
          key: `${this.generation} ${column} ${line}`, from: from + column * long, top: top + line * tall, scale: this.scale / ratio, unit: this.unit * ratio, width, height,
        });
      }
    }
    return found;
  }

  /** Ask for the tiles that are not there, and for those in which what goes on has grown. */
  want() {
    const places = this.places(), due = now() - Math.max(GROWING, this.scale), missing = [];
    this.isComplete = true;
    for (const place of places) {
      const known = this.tiles.get(place.key);
      this.isComplete &&= Boolean(known?.picture);
      const hasGrown = known?.picture && known.painted < due && place.from < now() && place.from + place.width * place.scale > known.painted;
      if (!known) this.tiles.set(place.key, place);
      if (!known?.picture || hasGrown) missing.push(place);
    }
    if (missing.some((place) => !this.asked.has(place.key))) {
      this.asked = new Set(missing.map((place) => place.key));
      this.engine.tell("tiles", { tiles: missing });
    }
    for (const [key, tile] of this.tiles) {
      if (this.tiles.size <= KEPT) break;
      if (!this.isSeen(tile)) this.tiles.delete(key), tile.picture?.close();
    }
  }

  /** Take a tile that was painted. */
  take({ tile, picture, names, painted }) {
    const place = this.tiles.get(tile);
    this.asked.delete(tile);
    if (!place) return picture.close();
    place.picture?.close();
    Object.assign(place, { picture, names, painted });
    if (this.asked.size) this.waiting ||= setTimeout(() => ((this.waiting = 0), this.draw()), TOGETHER); // a picture of the screen costs as much as a tile
    else this.draw();
  }

  /** Draw, once before the next picture of the screen. */
  draw() {
    this.isDue ||= Boolean(requestAnimationFrame(() => {
      const begun = performance.now();
      this.isDue = false;
      if (this.width && this.rows.length) this.drawNow();
      this.script.push(performance.now() - begun);
      if (this.script.length > 2000) this.script.splice(0, 1000);
    }));
  }

  drawNow() {
    const { pen, width, height, left, paint, ratio } = this;
    this.want();
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = paint.card;
    pen.fillRect(0, 0, width, height);
    pen.save();
    pen.beginPath();
    pen.rect(left, RULER, width - left, height - RULER);
    pen.clip();
    this.drawUnder();
    if (!this.isComplete) for (const tile of this.former) this.drawTile(tile);
    else if (this.former.length) this.forget();
    for (const tile of this.tiles.values()) if (tile.picture && this.isSeen(tile)) this.drawTile(tile);
    this.drawOver();
    pen.restore();
    this.drawRim();
    if (this.isComplete) this.told.complete();
  }

  drawUnder() {
    for (const draw of this.under) draw();
  }

  drawOver() {
    this.drawLines();
    this.drawNames();
    for (const draw of this.over) draw();
    this.drawBoxes();
  }

  /** Draw what stands beside the jobs. */
  drawRim() {
    this.drawRows();
    this.drawDates();
  }

  /** Return where everything is, and what a pen for vectors draws of it, in the colours of now, for who paints the jobs the same way. */
  sight(vectors) {
    const { pen, from, scale, top, unit, width, height, left } = this;
    this.pen = vectors;
    this.choose();
    const part = (draw) => (draw.call(this), vectors.taken());
    try {
      return { from, scale, top, unit, width, height, left, ruler: RULER, under: part(this.drawUnder), over: part(this.drawOver), rim: part(this.drawRim) };
    } finally {
      this.pen = pen;
    }
  }

  forget() {
    for (const tile of this.former) tile.picture.close();
    this.former = [];
  }

  drawTile({ picture, from, top, scale, unit, width, height }) {
    if (!picture?.width) return;
    const x = this.x(from), y = this.y(top);
    this.pen.imageSmoothingEnabled = scale * this.ratio !== this.scale || unit !== this.unit * this.ratio;
    const right = this.x(from + width * scale), low = this.y(top + height / unit);
    this.pen.drawImage(picture, Math.round(x), Math.round(y), Math.round(right) - Math.round(x), Math.round(low) - Math.round(y));
  }

  x(date) {
    return this.left + (date - this.from) / this.scale;
  }

  y(row) {
    return RULER + (row - this.top) * this.unit;
  }

  drawLines() {
    const { pen, paint, unit } = this, last = Math.min(this.rows.length, Math.ceil(this.bottom));
    pen.fillStyle = paint.line;
    if (unit >= LINED) for (let row = Math.floor(this.top); row <= last; row++) pen.fillRect(this.left, Math.round(this.y(row)), this.width, 0.5);
    for (const { date, isDay } of this.marks()) pen.fillRect(Math.round(this.x(date)), RULER, isDay ? 1 : 0.5, this.height);
    for (const group of this.groups) if (group.count * unit > LINED) pen.fillRect(this.left, Math.round(this.y(group.first)), this.width, 1);
  }

  marks() {
    const key = `${this.from} ${this.scale} ${this.width}`;
    if (this.marked?.key !== key) this.marked = { key, dates: dates(this.from, this.to, this.scale) };
    return this.marked.dates;
  }

  /** Write on each job with room for it what it is. */
  drawNames() {
    const { pen } = this, done = new Set(), frames = [];
    pen.font = `11px ${this.font}`;
    pen.textBaseline = "middle";
    pen.fillStyle = this.paint.ink;
    for (const tile of this.tiles.values()) {
      if (!tile.picture || !this.isSeen(tile)) continue;
      for (const [id, begin, end, top, bottom, text, isFrame] of tile.names) {
        const key = `${id} ${top}`;
        if (done.has(key)) continue;
        done.add(key);
        if (isFrame) {
          frames.push([id, begin, end, top, bottom, text]);
          continue;
        }
        const x = Math.max(this.left, this.x(begin)) + 4, room = Math.min(this.width, this.x(end)) - x - 3;
        if (room < 28 || !this.isNamed) continue;
        const whole = `${id}${text && room > 110 ? ` ${text}` : ""}`;
        const high = this.y(Math.max(top, this.top)), low = this.y(Math.min(bottom, this.bottom));
        this.write(whole.length * 6.2 > room ? whole.slice(0, Math.max(1, Math.floor(room / 6.6))) : whole, x, (high + low) / 2);
      }
    }
    for (const frame of frames) this.drawFrame(...frame);
  }

  /** Draw the outline of an advance reservation, whatever is in it. */
  drawFrame(id, begin, end, top, bottom, text) {
    const { pen, paint } = this, right = Math.min(this.width, this.x(end)), high = this.y(top);
    pen.lineWidth = 2;
    pen.fillStyle = pen.strokeStyle = paint["state-reserved"];
    pen.strokeRect(this.x(begin), high + 1, (end - begin) / this.scale, (bottom - top) * this.unit - 2);
    const words = `${id} ${text}`.trim(), wide = pen.measureText(words).width + 8;
    if (right - Math.max(this.left, this.x(begin)) < wide) return;
    pen.fillRect(right - wide, high, wide, NAMED + 4);
    pen.fillStyle = paint.card;
    pen.fillText(words, right - wide + 4, high + NAMED / 2 + 2);
  }

  /** Write a text that is read on every colour: with a rim of the paper's. */
  write(text, x, y) {
    const { pen, paint } = this;
    pen.lineWidth = 2.5;
    pen.lineJoin = "round";
    pen.strokeStyle = paint.card;
    pen.strokeText(text, x, y);
    pen.fillText(text, x, y);
  }

  drawBoxes() {
    const { pen, paint } = this;
    pen.strokeStyle = paint.ink;
    pen.lineWidth = 2;
    for (const [begin, end, top, bottom] of this.boxes) {
      pen.strokeRect(this.x(begin), this.y(top), Math.max(2, (Math.min(end, this.to + 86400) - begin) / this.scale), Math.max(2, (bottom - top) * this.unit));
    }
    for (const arrow of this.arrows) this.drawArrow(...arrow);
    this.drawSupposed();
    this.drawSelection();
    const at = this.x(now());
    pen.fillStyle = paint.mark;
    if (at >= this.left) pen.fillRect(at - 1, RULER, 2, this.height);
  }

  /** Draw an arrow from the end of a piece to the begin of another one; with a rim, since it crosses others. */
  drawArrow([, end, top, bottom], [begin, , above, below]) {
    const { pen, paint } = this, x = this.x(end), y = this.y((top + bottom) / 2), toX = this.x(begin), toY = this.y((above + below) / 2);
    const angle = Math.atan2(toY - y, toX - x), wing = (turn) => [toX - ARROW * Math.cos(angle + turn), toY - ARROW * Math.sin(angle + turn)];
    for (const [colour, width] of [[paint.card, 4], [paint.ink, 1.5]]) {
      pen.strokeStyle = colour;
      pen.lineWidth = width;
      pen.beginPath();
      pen.moveTo(x, y);
      pen.lineTo(toX, toY);
      pen.moveTo(...wing(0.4));
      pen.lineTo(toX, toY);
      pen.lineTo(...wing(-0.4));
      pen.stroke();
    }
  }

  /** Show where a job would be that was asked for only: {begin, end, nodes}; null: there is none. */
  suppose(supposed) {
    this.supposed = supposed;
    this.draw();
  }

  drawSupposed() {
    if (!this.supposed) return;
    const { pen, paint } = this, { begin, end, nodes } = this.supposed, words = this.told.supposed;
    pen.save();
    pen.setLineDash([6, 4]);
    pen.lineWidth = 2;
    pen.fillStyle = pen.strokeStyle = paint.focus;
    let isFirst = true;
    for (const [top, bottom] of this.runs((row) => nodes.has(row.label) || nodes.has(row.group))) {
      const box = [this.x(begin), this.y(top), (end - begin) / this.scale, (bottom - top) * this.unit];
      pen.globalAlpha = 0.25;
      pen.fillRect(...box);
      pen.globalAlpha = 1;
      pen.strokeRect(...box);
      if (isFirst) this.write(words, Math.max(this.left, box[0]) + 4, box[1] + Math.max(NAMED, box[3]) / 2);
      isFirst = false;
    }
    pen.restore();
  }

  /** Return the rows that follow each other and are chosen as [first, the one behind the last]. */
  runs(isChosen) {
    const found = [];
    this.rows.forEach((row, place) => {
      if (!isChosen(row)) return;
      if (found.at(-1)?.[1] === place) found.at(-1)[1] = place + 1;
      else found.push([place, place + 1]);
    });
    return found;
  }

  drawSelection() {
    if (!this.area) return;
    const { pen, paint } = this, { from, to, top, bottom } = this.area;
    const box = [this.x(from), this.y(top), (to - from) / this.scale, (bottom - top) * this.unit];
    pen.fillStyle = pen.strokeStyle = paint.focus;
    pen.globalAlpha = 0.18;
    pen.fillRect(...box);
    pen.globalAlpha = 1;
    pen.strokeRect(...box);
  }

  /** Select an area, {from, to, top, bottom}; null: none. */
  select(area) {
    this.area = area;
    this.told.selected(area);
    this.draw();
  }

  /** Select an area by keys: it begins with the job that is outlined, else in the middle; its far corner moves. */
  extend(across, down) {
    const step = STEP * this.span, rows = this.rows.length;
    if (!rows) return;
    const { from, to, top, bottom } = this.area ?? this.beginning();
    const area = { from, to: Math.max(from + step / 4, to + across * step), top, bottom: Math.min(rows, Math.max(top + 1, bottom + down)) };
    if (area.to > this.to) this.from = area.to - this.span;
    if (area.bottom > this.bottom) (this.top += area.bottom - this.bottom), this.fit();
    this.select(area);
    this.told.moved();
  }

  /** Return where an area begins that keys select. */
  beginning() {
    const [begin, end, top, bottom] = this.boxes[0] ?? [];
    if (begin !== undefined && begin < this.to && end > this.from) return { from: Math.max(begin, this.from), to: Math.min(end, this.to), top: Math.floor(top), bottom: Math.ceil(bottom) };
    const from = this.from + this.span / 2, row = Math.floor((this.top + Math.min(this.bottom, this.rows.length)) / 2);
    return { from, to: from, top: row, bottom: row + 1 };
  }

  drawRows() {
    const { pen, paint, left, unit, height } = this;
    pen.fillStyle = paint.card;
    pen.fillRect(0, RULER, left, height);
    pen.textBaseline = "middle";
    pen.font = `11px ${this.font}`;
    pen.fillStyle = paint.ink;
    const groupRoom = Math.max(left / 2, Math.min(this.groupRoom, left - 3 * GROUP)), shared = this.drawGroups(unit >= NAMED ? groupRoom : left);
    pen.font = `11px ${this.font}`;
    const every = Math.max(1, Math.ceil(NAMED / unit)), isDeep = this.groups.length > 0;
    if (!isDeep || unit >= NAMED) {
      pen.textAlign = isDeep ? "right" : "left"; // groups stand at the left
      for (let row = Math.floor(this.top / every) * every; row < Math.min(this.rows.length, this.bottom); row += every) {
        if (this.rows[row].isFolded) continue;
        const room = shared.has(row) ? left - groupRoom - 6 : left - (isDeep ? GROUP : 4);
        pen.fillText(shortened(this.rows[row].label, room), isDeep ? left - 8 : 4, this.y(row) + Math.max(unit, NAMED) / 2);
      }
      pen.textAlign = "left";
    }
  }

  /** Write the names of groups, each at its first row in sight; return the rows that share their place with one. */
  drawGroups(room) {
    const { pen, height, unit } = this, shared = new Set();
    pen.font = `600 11px ${this.font}`;
    let free = RULER;
    for (const group of this.groups) {
      const y = this.y(group.first), low = y + group.count * unit;
      if (low < RULER || y > height) continue;
      const middle = Math.max(y, free) + Math.max(NAMED, Math.min(unit, COMFORTABLE)) / 2;
      if (middle + 5 > Math.max(low, y + NAMED) && middle - y > NAMED) continue;
      pen.fillText(`${group.isFolded ? "▸" : "▾"} ${shortened(group.name, group.isFolded ? this.left - 16 : room - 16)}`, 4, middle);
      shared.add(Math.floor(this.top + (middle - RULER) / unit));
      free = middle + 7;
    }
    return shared;
  }

  drawDates() {
    const { pen, paint, width, left } = this;
    pen.fillStyle = paint.card;
    pen.fillRect(0, 0, width, RULER);
    pen.fillStyle = paint.faint;
    pen.fillRect(0, RULER - 1, width, 1);
    pen.textBaseline = "middle";
    for (const { date, text, isDay } of this.marks()) {
      const x = this.x(date);
      if (x < left || x + text.length * LETTER > width) continue;
      pen.font = `${isDay ? "600 " : ""}11px ${this.font}`;
      pen.fillStyle = isDay ? paint.ink : paint.faint;
      pen.fillText(text, x + 3, RULER / 2);
    }
    pen.font = `11px ${this.font}`;
    pen.fillStyle = paint.faint;
    pen.fillText(shortened(corner(this.from, this.scale, left === NAMES_NARROW), left - 8), 4, RULER / 2);
    const at = this.x(now());
    if (at < left || at > width) return;
    pen.fillStyle = paint.mark;
    for (let wide = 4; wide > 0; wide--) pen.fillRect(at - wide, RULER - 2 * wide, 2 * wide, 2);
  }

  // -- hands ----------------------------------------------------------------------------------------------------------

  /** Move by a part of what is seen. */
  move(across, down) {
    this.from = Math.max(0, this.from + across * (this.to - this.from));
    this.top += (down * (this.height - RULER)) / this.unit;
    this.fit();
    this.draw();
    this.told.moved();
  }

  /** Enlarge time about a place of the screen. */
  zoom(factor, x = (this.left + this.width) / 2) {
    const date = this.from + (x - this.left) * this.scale;
    this.span = Math.min(LONGEST, Math.max(SHORTEST, this.span / factor));
    this.from = Math.max(0, date - (x - this.left) * this.scale);
    this.renew();
    this.told.moved();
  }

  /** Give rows a height, and begin with the first one. */
  heighten(unit) {
    Object.assign(this, { isFitted: false, unit: Math.min(HIGHEST, Math.max(LOWEST, unit)), top: 0 });
    this.fit();
    this.renew();
  }

  /** Enlarge rows about a place of the screen; null: all of them are seen. */
  stretch(factor, y = RULER + (this.height - RULER) / 2) {
    const row = this.top + (y - RULER) / this.unit;
    this.isFitted = factor === null;
    if (factor !== null) {
      this.unit = Math.min(HIGHEST, Math.max(LOWEST, this.unit * factor));
      this.top = row - (y - RULER) / this.unit;
    }
    this.fit();
    this.renew();
    this.told.moved();
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  press(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.touches.set(event.pointerId, this.place(event));
    this.hasMoved = false;
    this.corner = event.altKey ? this.place(event) : null;
  }

  point(event) {
    const here = this.place(event), old = this.touches.get(event.pointerId);
    if (!old) return this.hover(here);
    if (this.corner) return (this.area = this.areaTo(here)), this.draw();
    const other = [...this.touches].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const before = Math.hypot(old.x - other.x, old.y - other.y), after = Math.hypot(here.x - other.x, here.y - other.y);
      if (before > 10 && after > 10) this.zoom(after / before, (here.x + other.x) / 2);
    } else {
      if (Math.hypot(here.x - old.x, here.y - old.y) < 3 && !this.hasMoved) return;
      this.hasMoved = true;
      this.from = Math.max(0, this.from - (here.x - old.x) * this.scale);
      this.top -= (here.y - old.y) / this.unit;
      this.fit();
      this.draw();
      this.told.moved();
    }
    this.touches.set(event.pointerId, here);
  }

  release(event) {
    const here = this.place(event), wasPressed = this.touches.delete(event.pointerId);
    if (this.corner) {
      this.corner = null;
      return this.select(this.area);
    }
    if (!wasPressed || this.hasMoved) return;
    const group = here.x < this.left && here.x < 20 && this.groups.find((each) => here.y >= this.y(each.first) && here.y < this.y(each.first + each.count));
    if (group) this.told.folded(group.name);
    else this.look(here);
  }

  /** The browser has taken a touch for itself, to scroll the page. */
  cancel(event) {
    this.touches.delete(event.pointerId);
    this.corner = null;
  }

  /** Return the area between where Alt was held and a place: whole rows. */
  areaTo(here) {
    const dates = [this.corner.x, here.x].map((x) => Math.max(0, this.from + (Math.max(x, this.left) - this.left) * this.scale));
    const rows = [this.corner.y, here.y].map((y) => Math.max(0, Math.min(this.rows.length - 1e-6, this.top + (Math.max(y, RULER) - RULER) / this.unit)));
    return { from: Math.min(...dates), to: Math.max(...dates), top: Math.floor(Math.min(...rows)), bottom: Math.floor(Math.max(...rows)) + 1 };
  }

  hover(here) {
    clearTimeout(this.hovering);
    this.hovering = setTimeout(() => this.look(here), 40);
  }

  leave() {
    clearTimeout(this.hovering);
    this.looked = null;
    this.told.chosen(null, null);
  }

  /** Ask what is at a place. */
  async look(here) {
    const { x, y } = here;
    if (x < this.left || y < RULER || !this.rows.length) return;
    this.looked = here;
    const date = this.from + (x - this.left) * this.scale;
    const found = await this.engine.ask("hit", { date, height: this.top + (y - RULER) / this.unit, reach: this.scale });
    if (this.looked === here) this.told.chosen(found, here);
  }

  open() {
    this.told.opened();
  }

  wheel(event) {
    const { x, y } = this.place(event), turned = event.deltaMode ? event.deltaY * 30 : event.deltaY;
    if (event.ctrlKey || event.metaKey) this.zoom(2 ** (-turned / 240), x);
    else if (event.altKey) this.stretch(2 ** (-turned / 240), y);
    else if (event.shiftKey || event.deltaX) this.move((event.deltaX || turned) / (this.width - this.left), 0);
    else if (this.rows.length * this.unit <= this.height - RULER + 1) return;
    else this.move(0, turned / (this.height - RULER));
    event.preventDefault();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const acts = {
      ArrowLeft: () => this.move(-STEP, 0), ArrowRight: () => this.move(STEP, 0), ArrowUp: () => this.move(0, -STEP), ArrowDown: () => this.move(0, STEP),
      PageUp: () => this.move(0, -1), PageDown: () => this.move(0, 1), "+": () => this.zoom(ZOOM), "-": () => this.zoom(1 / ZOOM),
      "]": () => this.stretch(ZOOM), "[": () => this.stretch(1 / ZOOM), 0: () => this.stretch(null), Home: () => this.told.home(),
      n: () => this.told.walked(1), p: () => this.told.walked(-1), Enter: () => this.told.opened(), Escape: () => this.select(null),
    };
    const areas = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const act = (event.shiftKey && areas[event.key] && (() => this.extend(...areas[event.key]))) || (acts[event.key] ?? (event.key === "=" ? acts["+"] : null));
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** Return where the outlined job is on the screen: below the begin of its first piece. */
  get outlined() {
    const [begin, , , bottom] = this.boxes[0] ?? [];
    return begin === undefined ? null : { x: Math.max(this.left, Math.min(this.x(begin), this.width)), y: this.y(Math.min(bottom, this.bottom)) };
  }

  /** Outline the pieces of a job, and bring it into sight if it is not. */
  outline(boxes, isSought = false) {
    this.boxes = boxes;
    this.arrows = [];
    if (isSought && boxes.length) {
      const [begin, end, top] = boxes[0];
      if (end < this.from || begin > this.to) this.from = Math.max(0, begin - (this.to - this.from) / 4);
      if (top < this.top || top > this.bottom - 1) (this.top = top - 2), this.fit();
      this.told.moved();
    }
    this.draw();
  }

  /** Show what the outlined job depends on and what depends on it: pairs of pieces, of which the second waits. */
  connect(arrows) {
    this.arrows = arrows;
    this.draw();
  }
}

export function shortened(text, width) {
  const most = Math.max(0, Math.floor(width / LETTER)), short = text.length > most ? text.split(".")[0] : text;
  return short.length > most ? `${short.slice(0, Math.max(0, most - 1))}…` : short;
}
