// Pieces of time as the service cuts dates to them: days, weeks and months of UTC.
const DAY = 86_400;

/** Return when the piece of time behind one that begins at a date begins; pieces are those of UTC. */
export function following(begin, bucket) {
  if (bucket !== "month") return begin + (bucket === "week" ? 7 : 1) * DAY;
  const date = new Date(begin * 1000);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1) / 1000;
}
