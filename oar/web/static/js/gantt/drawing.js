// The view as a drawing of vectors, to be printed or put into a paper.
import { cssOf } from "./colours.js";
import { MARKS, Painter } from "./paint.js";
import { short } from "./vector-pen.js";

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

/**
 * Return the drawing; `sight` = {from, scale, top, unit, width, height, left, ruler, under, over, rim} is where it is on
 * the screen, and what lies below the jobs, over them, and beside them, as vectors.  Null: it would be too full.
 */
export function drawing(scene, sight) {
  const { left, ruler, width, height } = sight, made = new Drawing(width - left, height - ruler);
  made.paint(scene, sight);
  if (made.parts.length > MOST) return null;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="10">`,
    "<defs>", ...Object.entries(LINES).map(([name, path]) => `<pattern id="${name}" width="8" height="8" patternUnits="userSpaceOnUse"><path d="${path}" stroke="#fff" stroke-width="2.5"/></pattern>`),
    `<clipPath id="sight"><rect x="${left}" y="${ruler}" width="${width - left}" height="${height - ruler}"/></clipPath></defs>`,
    '<rect width="100%" height="100%" fill="#fff"/>', '<g clip-path="url(#sight)">', ...sight.under, "</g>",
    `<g transform="translate(${left} ${ruler})" stroke="#333" stroke-width="0.3">`, ...made.parts, "</g>",
    '<g clip-path="url(#sight)">', ...sight.over, "</g>", ...sight.rim, "</svg>",
  ].join("\n");
}
