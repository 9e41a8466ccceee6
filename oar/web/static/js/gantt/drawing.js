// The view as a drawing of vectors, to be printed or put into a paper.
import { cssOf } from "./colours.js";
import { MARKS, Painter } from "./paint.js";

/** Boxes of one drawing; a view that holds more is told to be too full. */
const MOST = 50_000;
/** Patterns by what is drawn so: lines over the colour. */
const LINES = {
  plan: "M-2,2 2,-2 M0,8 8,0 M6,10 10,6", rest: "M0,8 8,0", pause: "M0,2 8,2 M0,6 8,6",
  suspected: "M0,0 8,8", dead: "M0,0 8,8 M0,8 8,0", absent: "M0,4 8,4 M4,0 4,8",
};

class Drawing extends Painter {
  parts = [];

  layer(fill) {
    fill();
  }

  fill(begin, end, top, bottom, colour, marks) {
    const { from, scale, top: above, unit } = this.place;
    const left = Math.max(0, (begin - from) / scale), right = Math.min(this.width, (end - from) / scale);
    const high = Math.max(0, (top - above) * unit), low = Math.min(this.height, (bottom - above) * unit);
    if (right <= left || low <= high || this.parts.length > MOST) return;
    const place = `x="${short(left)}" y="${short(high)}" width="${short(Math.max(0.3, right - left))}" height="${short(low - high)}"`;
    const pattern = Object.entries(MARKS).find(([, mark]) => marks & mark)?.[0];
    this.parts.push(`<rect ${place} fill="${cssOf(colour)}"${pattern === "faint" ? ' fill-opacity="0.15"' : ""} class="${pattern ?? "plain"}"/>`);
    if (LINES[pattern]) this.parts.push(`<rect ${place} fill="url(#${pattern})"/>`);
  }
}

/** Return the drawing; `sight` = {from, scale, top, unit, width, height, left, ruler, dates, rows} is where it is on the screen.  Null: it would be too full. */
export function drawing(scene, sight) {
  const { left, ruler, width, height, unit, top, scale, from } = sight, made = new Drawing(width - left, height - ruler);
  made.paint(scene, sight);
  if (made.parts.length > MOST) return null;
  const y = (row) => ruler + (row - top) * unit, x = (date) => left + (date - from) / scale;
  const text = (at, high, words, more = "") => `<text x="${short(at)}" y="${short(high)}"${more}>${escaped(words)}</text>`;
  const names = made.names.map(([id, begin, end, above, below, words, isFrame]) =>
    isFrame ? text(x(Math.min(end, from + (width - left) * scale)) - 3, y(above) + 10, `${id} ${words}`, ' text-anchor="end"') : text(x(Math.max(begin, from)) + 3, (y(above) + y(below)) / 2 + 4, id));
  const every = Math.max(1, Math.ceil(11 / unit));
  const rows = sight.rows.flatMap((label, place) => (place % every ? [] : [text(4, y(Math.floor(top) + place) + Math.max(unit, 11) / 2 + 4, label)]));
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="10">`,
    "<defs>", ...Object.entries(LINES).map(([name, path]) => `<pattern id="${name}" width="8" height="8" patternUnits="userSpaceOnUse"><path d="${path}" stroke="#fff" stroke-width="2.5"/></pattern>`),
    `<clipPath id="sight"><rect x="${left}" y="${ruler}" width="${width - left}" height="${height - ruler}"/></clipPath></defs>`,
    '<rect width="100%" height="100%" fill="#fff"/>', `<g transform="translate(${left} ${ruler})" stroke="#333" stroke-width="0.3">`, ...made.parts, "</g>",
    ...sight.dates.map(({ date, text: words }) => `<path d="M${short(x(date))},${ruler} V${height}" stroke="#bbb" stroke-width="0.5"/>${text(x(date) + 2, ruler - 6, words)}`),
    '<g clip-path="url(#sight)">', ...names, "</g>", ...rows,
    `<path d="M${short(x(scene.now))},${ruler} V${height}" stroke="#b85c00" stroke-width="1.5" clip-path="url(#sight)"/>`, "</svg>",
  ].join("\n");
}

function short(number) {
  return Math.round(number * 100) / 100;
}

/** Return a text as it stands in a drawing: what users name their jobs is no markup. */
function escaped(text) {
  const signs = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  return String(text).toWellFormed().replace(/[^\t\n\r -\uFFFD\u{10000}-\u{10FFFF}]/gu, "").replace(/[&<>"]/g, (sign) => signs[sign]);
}
