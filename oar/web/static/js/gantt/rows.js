// Where resources are drawn: rows from top to bottom, one unit each, and in a row a lane for each of its resources.

/** What stands between the values of several levels in the name of a row. */
const BETWEEN = " / ";

/**
 * Lay rows out.  `record` is the answer of /v1/gantt/rows; groups are the values of the outermost of several levels;
 * those in `folded` become one row; of rows whose name has not `word` in it there is nothing.
 * Returns {rows: [{label, group, isFolded, number}], groups: [{name, first, count, isFolded}], segments}.
 */
export function layOut(record, folded = new Set(), word = "") {
  const isDeep = record.levels.length > 1, wanted = word.toLowerCase();
  const rows = [], groups = [], parts = [];
  for (const item of record.items) {
    const values = isDeep ? item.labels.map((each) => each || item.type) : item.labels;
    const group = isDeep ? values[0] : "", label = isDeep ? values.slice(1).join(BETWEEN) : values[0] || item.type;
    if (wanted && !label.toLowerCase().includes(wanted) && !group.toLowerCase().includes(wanted)) continue;
    if (isDeep && groups.at(-1)?.name !== group) groups.push({ name: group, first: rows.length, count: 0, isFolded: folded.has(group) });
    const of = groups.at(-1);
    if (of?.isFolded && of.count) rows.at(-1).items.push(item);
    else rows.push({ label: of?.isFolded ? group : label, group, isFolded: Boolean(of?.isFolded), number: 0, items: [item] }), of && (of.count += 1);
  }
  rows.forEach((row, place) => {
    for (const item of row.items) row.number += item.number;
    let before = 0;
    for (const item of row.items) {
      for (const [first, count] of item.resources) {
        parts.push({ first, count, top: place + before / row.number, each: 1 / row.number });
        before += count;
      }
    }
    row.items = null;
  });
  return { rows, groups, segments: joined(parts) };
}

/** Join parts that follow each other by their ids and by their places. */
function joined(parts) {
  const found = [];
  for (const part of parts.sort((a, b) => a.first - b.first)) {
    const last = found.at(-1);
    const follows = last && last.first + last.count === part.first && last.each === part.each && near(last.top + last.count * last.each, part.top);
    if (follows) last.count += part.count;
    else found.push(part);
  }
  return found;
}

function near(a, b) {
  return Math.abs(a - b) < 1e-6;
}

/** Call `take(top, bottom)` for each piece of the diagram that a range of resources is. */
export function pieces(segments, first, count, take) {
  const end = first + count;
  let low = 0, high = segments.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (segments[middle].first + segments[middle].count <= first) low = middle + 1;
    else high = middle;
  }
  let top = -1, bottom = -1;
  for (; low < segments.length && segments[low].first < end; low++) {
    const segment = segments[low];
    const from = Math.max(first, segment.first), to = Math.min(end, segment.first + segment.count);
    const here = segment.top + (from - segment.first) * segment.each, there = segment.top + (to - segment.first) * segment.each;
    if (top >= 0 && near(here, bottom)) bottom = there;
    else {
      if (top >= 0) take(top, bottom);
      top = here;
      bottom = there;
    }
  }
  if (top >= 0) take(top, bottom);
}
