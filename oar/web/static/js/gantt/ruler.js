// Dates along the top of the diagram.
import { fullDate, offset, zoneName } from "../common/format.js";

const MINUTE = 60, HOUR = 3600, DAY = 86400;
/** Steps between dates, in seconds. */
const STEPS = [MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY, 364 * DAY];
/** Pixels between two dates at least. */
const ROOM = 84;

/** Return dates between two others, {date, text, isDay}, so that their texts have room. */
export function dates(from, to, scale) {
  const step = STEPS.find((each) => each / scale >= ROOM) ?? STEPS.at(-1);
  const shift = offset(from), found = [];
  for (let date = Math.ceil((from + shift) / step) * step - shift; date < to && found.length < 200; date += step) {
    const full = fullDate(date), isDay = full.slice(11, 16) === "00:00";
    found.push({ date, isDay, text: step >= DAY ? full.slice(0, 10) : isDay ? full.slice(5, 10) : full.slice(11, 16) });
  }
  return found;
}

/** Return what stands beside the dates: the day that the left edge is in, unless they tell it, and the zone. */
export function corner(from, scale, isNarrow) {
  const day = STEPS.find((each) => each / scale >= ROOM) < DAY ? fullDate(from).slice(5, 10) : "";
  return [day, isNarrow && day ? "" : zoneName()].filter(Boolean).join(" ");
}
