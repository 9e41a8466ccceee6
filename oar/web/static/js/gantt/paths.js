// The addresses of what the diagram is made of, below v1/gantt/.

const HOUR = 3600, DAY = 86400;

/** Return the address of the rows by some properties. */
export function rowsPath(levels) {
  return `rows?rows=${encodeURIComponent(levels)}`;
}

/** Return the address of what goes on: all of it, or what has changed since. */
export function livePath(cursor = "") {
  return cursor ? `live?since=${cursor}` : "live";
}

/** Return the address of the days between two dates. */
export function daysPath(from, to) {
  return `index?from=${Math.floor(from)}&to=${Math.floor(to)}`;
}

/** Return when the day of a date begins, UTC. */
export function dayOf(date) {
  return Math.max(0, Math.floor(date / DAY) * DAY);
}

/** Return up to when days are asked for: behind now, and the same date for an hour. */
export function lastDate(present) {
  return Math.ceil((present + DAY) / HOUR) * HOUR;
}

/** Return the address of what ended on a day; of a version, or only what ended at a date or later. */
export function chunkPath({ day, version }, since) {
  return `chunks/${day}?${since ? `since=${since}` : `v=${encodeURIComponent(version)}`}`;
}

/** Whether something that ended on a day, as /v1/gantt/index tells of it, may have been between two dates. */
export function meets(item, from, to) {
  return endOf(item) > from && item.from < to;
}

/** Return when a day ends. */
export function endOf({ day }) {
  return Date.parse(day) / 1000 + DAY;
}
