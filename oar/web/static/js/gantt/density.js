// Below the jobs: how dense they were on days that hold too many of them to be drawn.
import { get } from "../common/api.js";
import { parsed } from "./colours.js";

/** Seconds of a piece of time, of which there are so many in sight at most; days of one question. */
const BUCKETS = [3600, 3 * 3600, 6 * 3600, 86_400], MOST_IN_SIGHT = 800, SPAN = 31 * 86_400;
/** Lines of a picture; answers that are kept. */
const LINES = 720, KEPT = 40;
/** What is there is seen, however little it covers. */
const LEAST = 40;

export class Density {
  answers = new Map();
  cut = 0;
  asked = 0;

  constructor(view, engine) {
    Object.assign(this, { view, engine });
    view.under.push(() => this.draw());
  }

  /** Show what ended before a day, "": everything is drawn.  `levels` are the properties of the rows. */
  async show(day, levels) {
    const { view } = this, mine = ++this.asked;
    this.cut = day ? Date.parse(day) / 1000 : 0;
    if (!this.cut) return;
    const bucket = BUCKETS.find((each) => (view.to - view.from) / each <= MOST_IN_SIGHT) ?? BUCKETS.at(-1);
    for (let at = Math.floor(view.from / SPAN) * SPAN; at < Math.min(view.to, this.cut); at += SPAN) {
      const to = Math.min(at + SPAN, this.cut), key = `${levels} ${bucket} ${at} ${to}`;
      if (!this.answers.has(key)) {
        const record = await get("gantt/density", { from: at, to, bucket, rows: levels }).catch(() => null);
        if (mine !== this.asked) return;
        if (record) this.answers.set(key, { ...record, to, levels, used: bytes(record.used), unusable: bytes(record.unusable) });
        for (const old of this.answers.keys()) if (this.answers.size > KEPT) this.answers.delete(old);
      }
      view.draw();
    }
    this.levels = levels;
    this.bucket = bucket;
    await this.place();
  }

  /** The colours are others. */
  recolour() {
    for (const each of this.answers.values()) each.rows = null;
    this.place();
  }

  /** Paint the answers anew where the rows are others. */
  async place() {
    for (const each of this.answers.values()) if (each.levels === this.levels && each.rows !== this.view.rows) await this.paint(each);
    this.view.draw();
  }

  async paint(answer) {
    const { rows } = this.view, boxes = (await this.engine.ask("pieces", { sets: answer.groups })) ?? [];
    const lines = Math.min(LINES, Math.max(1, rows.length * 4)), picture = new OffscreenCanvas(answer.parts, lines), pen = picture.getContext("2d");
    const pixels = pen.createImageData(answer.parts, lines), style = getComputedStyle(document.documentElement);
    const [used, unusable] = ["used", "absent"].map((name) => parsed(style.getPropertyValue(`--state-${name}`).trim()));
    boxes.forEach((pieces, group) => {
      for (const [top, bottom] of pieces) {
        for (let line = Math.floor((top / rows.length) * lines); line < Math.max(Math.floor((top / rows.length) * lines) + 1, Math.round((bottom / rows.length) * lines)); line++) {
          if (line < lines) shade(pixels.data, line * answer.parts, answer, group, used, unusable);
        }
      }
    });
    pen.putImageData(pixels, 0, 0);
    Object.assign(answer, { picture, rows });
  }

  draw() {
    const { view, cut } = this;
    if (!cut) return;
    view.pen.imageSmoothingEnabled = false;
    for (const each of this.answers.values()) {
      if (each.rows !== view.rows || each.bucket !== this.bucket || each.levels !== this.levels || each.from >= view.to || each.to <= view.from || each.to > cut) continue;
      const x = view.x(each.from), y = view.y(0);
      view.pen.drawImage(each.picture, x, y, view.x(each.from + each.bucket * each.parts) - x, view.y(view.rows.length) - y);
    }
  }
}

function bytes(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** Shade a line of pixels by how much of a group was used and unusable in each piece of time. */
function shade(data, start, { used, unusable, parts }, group, ofUsed, ofUnusable) {
  for (let part = 0; part < parts; part++) {
    const one = used[group * parts + part], other = unusable[group * parts + part], at = 4 * (start + part);
    const colour = one >= other ? ofUsed : ofUnusable, most = Math.max(one, other);
    if (!most) continue;
    [data[at], data[at + 1], data[at + 2]] = colour;
    data[at + 3] = Math.max(LEAST, most);
  }
}
