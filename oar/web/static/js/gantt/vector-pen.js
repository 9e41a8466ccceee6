// A pen that writes down, as vectors, what it is told to draw: what a canvas shows over and below the jobs, for paper.

/** Pixels of a letter, on average. */
const LETTER = 6.2;
const KEPT = ["fillStyle", "strokeStyle", "lineWidth", "globalAlpha", "font", "textAlign", "dash"];

export class VectorPen {
  parts = [];
  fillStyle = "#000";
  strokeStyle = "#000";
  lineWidth = 1;
  globalAlpha = 1;
  font = "";
  textAlign = "left";
  dash = [];
  stack = [];

  /** Take the parts that were drawn since. */
  taken() {
    return this.parts.splice(0);
  }

  save() {
    this.stack.push(KEPT.map((name) => this[name]));
  }

  restore() {
    this.stack.pop().forEach((value, place) => (this[KEPT[place]] = value));
  }

  setLineDash(dash) {
    this.dash = dash;
  }

  fillRect(...box) {
    this.parts.push(`<rect ${place(...box)} fill="${this.fillStyle}"${this.alpha}/>`);
  }

  strokeRect(...box) {
    this.parts.push(`<rect ${place(...box)} fill="none"${this.line}/>`);
  }

  beginPath() {
    this.path = "";
  }

  moveTo(x, y) {
    this.path += `M${short(x)},${short(y)}`;
  }

  lineTo(x, y) {
    this.path += `L${short(x)},${short(y)}`;
  }

  stroke() {
    this.parts.push(`<path d="${this.path}" fill="none"${this.line}/>`);
  }

  fillText(...given) {
    this.text(...given, `fill="${this.fillStyle}"`);
  }

  strokeText(...given) {
    this.text(...given, `fill="none"${this.line} stroke-linejoin="round"`);
  }

  text(words, x, y, how) {
    const weight = this.font.startsWith("600") ? ' font-weight="600"' : "", anchor = this.textAlign === "right" ? ' text-anchor="end"' : "";
    this.parts.push(`<text x="${short(x)}" y="${short(y + 4)}" font-size="11"${weight}${anchor} ${how}>${escaped(words)}</text>`);
  }

  measureText(words) {
    return { width: words.length * LETTER };
  }

  drawImage(picture, ...box) {
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: picture.width, height: picture.height });
    canvas.getContext("2d").drawImage(picture, 0, 0);
    this.parts.push(`<image ${place(...box)} href="${canvas.toDataURL()}" preserveAspectRatio="none" image-rendering="pixelated"/>`);
  }

  get alpha() {
    return this.globalAlpha < 1 ? ` opacity="${this.globalAlpha}"` : "";
  }

  get line() {
    return ` stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}"${this.dash.length ? ` stroke-dasharray="${this.dash.join()}"` : ""}${this.alpha}`;
  }
}

function place(x, y, width, height) {
  return `x="${short(x)}" y="${short(y)}" width="${short(Math.max(0, width))}" height="${short(Math.max(0, height))}"`;
}

export function short(number) {
  return Math.round(number * 100) / 100;
}

/** Return a text as it stands in a drawing: what users name their jobs is no markup. */
export function escaped(text) {
  const signs = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  return String(text).toWellFormed().replace(/[^\t\n\r -\uFFFD\u{10000}-\u{10FFFF}]/gu, "").replace(/[&<>"]/g, (sign) => signs[sign]);
}
