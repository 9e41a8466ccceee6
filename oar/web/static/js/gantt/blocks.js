// Jobs and states of resources as columns of numbers: a day that is over, or what goes on.

const HEAD = 32, LAYOUT = 4;
const JOB_COLUMNS = ["id", "begin", "length", "walltime", "wait", "user", "project", "queue", "name", "types", "state", "kind", "outcome", "efficiency", "ranges"];
const WORDS = { user: "users", project: "projects", queue: "queues", name: "names", types: "types", state: "states", kind: "kinds", outcome: "outcomes" };
/** What goes on without an end that is known. */
export const FOR_EVER = 2 ** 32;
/** Rows for which pieces are found together. */
const BAND = 32;
/** What a job is doing that has not ended; 0: it has. */
export const RUNNING = 1;
export const PLANNED = 2;

/** Read a chunk: its layout is described in docs/api.rst, "The Gantt diagram".  Throws if it is none. */
export function readChunk(buffer) {
  const magic = String.fromCharCode(...new Uint8Array(buffer, 0, 4));
  const head = new Uint32Array(buffer, 0, HEAD / 4);
  if (magic !== "OARG" || head[1] !== LAYOUT) throw new Error("this is no chunk of the Gantt diagram");
  const [, , zero, jobs, ranges, states, pauses, length] = head;
  const words = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, HEAD, length)));
  let at = HEAD + length;
  const column = (number) => (at += 4 * number, joinedBytes(new Uint8Array(buffer, at - 4 * number, 4 * number)));
  const block = { words, jobs, ...Object.fromEntries(JOB_COLUMNS.map((name) => [name, column(jobs)])) };
  const absolute = (numbers) => numbers.map((each) => each + zero);
  for (let job = 1; job < jobs; job++) block.id[job] += block.id[job - 1];
  block.begin = absolute(block.begin);
  block.submitted = block.begin.map((begin, job) => begin - block.wait[job]);
  block.end = block.begin.map((begin, job) => begin + block.length[job]);
  block.phase = new Uint8Array(jobs);
  block.rangeFirst = column(ranges);
  block.rangeCount = column(ranges);
  block.states = { first: column(states), count: column(states), begin: absolute(column(states)), end: absolute(column(states)), state: column(states) };
  block.pauses = { job: column(pauses), begin: absolute(column(pauses)), end: absolute(column(pauses)) };
  return block;
}

/** Return numbers of which there are first the lowest bytes, then the next ones, then the others. */
function joinedBytes(bytes) {
  const number = bytes.length / 4, found = new Uint32Array(number);
  for (let each = 0, second = number, third = 2 * number, last = 3 * number; each < number; each++) {
    found[each] = bytes[each] | (bytes[second + each] << 8) | (bytes[third + each] << 16) | (bytes[last + each] << 24);
  }
  return found;
}

/** How much of their cores' time jobs used, by steps of so many percents; what of that nobody knows. */
const STEP = 20, UNKNOWN = 255;

/** Return which step the efficiency of a job is, the largest at last; -1: nobody knows. */
export function efficiencyOf(block, job) {
  const percents = block.efficiency[job];
  return percents === UNKNOWN ? -1 : Math.min(Math.floor(percents / STEP), 100 / STEP - 1);
}

/** Make the same of the answer of /v1/gantt/live. */
export function readLive(record) {
  const all = [...record.running, ...record.planned], numbers = new Numbers();
  const column = (value, kind = Uint32Array) => filled(new kind(all.length), all, value);
  const block = {
    words: numbers.words, jobs: all.length, id: column((job) => job.id), begin: column((job) => job.start),
    walltime: column((job) => job.walltime), submitted: column((job) => job.submitted),
    end: column((job) => (job.walltime ? job.start + job.walltime : FOR_EVER), Float64Array),
    efficiency: new Uint8Array(all.length).fill(UNKNOWN),
    phase: column((_, place) => (place < record.running.length ? RUNNING : PLANNED), Uint8Array),
    ranges: column((job) => job.resources.length), reason: all.map((job) => job.reason ?? ""),
  };
  for (const [name, list] of Object.entries(WORDS)) {
    block[name] = column(name === "types" ? (job) => numbers.of(list, job.types.join(" ")) : (job) => numbers.of(list, job[name] ?? ""));
  }
  [block.rangeFirst, block.rangeCount] = unzipped(all, (job) => job.resources);
  block.states = liveStates(record.states, numbers);
  block.pauses = {
    job: Uint32Array.from(record.suspended, (each) => each.job), begin: Uint32Array.from(record.suspended, (each) => each.from),
    end: Float64Array.from(record.suspended, (each) => each.to ?? FOR_EVER),
  };
  block.frames = record.reservations;
  return block;
}

function liveStates(states, numbers) {
  const parts = states.flatMap((state) => state.resources.map(([first, count]) => ({ first, count, begin: state.from, state: numbers.of("states", state.state) })));
  const of = (name) => Uint32Array.from(parts, (part) => part[name]);
  return { first: of("first"), count: of("count"), begin: of("begin"), end: new Float64Array(parts.length).fill(FOR_EVER), state: of("state") };
}

/** Gives words their places in lists. */
class Numbers {
  words = Object.fromEntries(Object.values(WORDS).map((name) => [name, []]));
  known = Object.fromEntries(Object.values(WORDS).map((name) => [name, new Map()]));

  of(name, text) {
    const known = this.known[name].get(text);
    if (known !== undefined) return known;
    this.known[name].set(text, this.words[name].length);
    return this.words[name].push(text) - 1;
  }
}

/** Fill a column; `from` of typed arrays takes ten times as long. */
function filled(column, all, value) {
  for (let place = 0; place < all.length; place++) column[place] = value(all[place], place);
  return column;
}

/** Return the pairs of all as two columns. */
function unzipped(all, pairs) {
  let number = 0;
  for (const each of all) number += pairs(each).length;
  const first = new Uint32Array(number), second = new Uint32Array(number);
  let at = 0;
  for (const each of all) for (const [one, other] of pairs(each)) (first[at] = one), (second[at++] = other);
  return [first, second];
}

/** Return a word of a job: its user, its queue, its efficiency; "" stands for an outcome that is not known yet. */
export function word(block, name, job) {
  if (name !== "efficiency") return block.words[WORDS[name]][block[name][job]];
  const step = efficiencyOf(block, job);
  return step < 0 ? "" : `${step * STEP}–${(step + 1) * STEP} %`;
}

/** Find the pieces of a block on the rows of a layout; what is known from elsewhere has none. */
export function place(block, segments, pieces) {
  const spans = { job: [], top: [], bottom: [] };
  for (let job = 0, range = 0; job < block.jobs; job++) {
    const isKnown = block.isKnown?.(job);
    for (const stop = range + block.ranges[job]; range < stop; range++) {
      if (!isKnown) pieces(segments, block.rangeFirst[range], block.rangeCount[range], (top, bottom) => (spans.job.push(job), spans.top.push(top), spans.bottom.push(bottom)));
    }
  }
  block.spans = { job: new Uint32Array(spans.job), top: new Float64Array(spans.top), bottom: new Float64Array(spans.bottom) };
  block.bands = banded(block.spans);
  const { first, count } = block.states, state = { of: [], top: [], bottom: [] };
  for (let each = 0; each < first.length; each++) if (!block.isKnownState?.(each)) pieces(segments, first[each], count[each], (top, bottom) => (state.of.push(each), state.top.push(top), state.bottom.push(bottom)));
  block.stateSpans = state;
  const placed = (list, found = []) => (list.forEach(([one, many]) => pieces(segments, one, many, (top, bottom) => found.push([top, bottom]))), found);
  for (const frame of block.frames ?? []) Object.assign(frame, { pieces: placed(frame.resources), lost: placed(frame.missing) });
  block.earliest = Math.min(...[block.begin, block.states.begin].map((dates) => dates.reduce((least, each) => Math.min(least, each), FOR_EVER)));
  block.latest = Math.max(...[block.end, block.states.end].map((dates) => dates.reduce((most, each) => Math.max(most, each), 0)));
}

/** Return for each band of rows which spans begin in it, and how far up one has to look for those that reach into it. */
function banded({ top, bottom }) {
  const number = top.reduce((most, each) => Math.max(most, Math.floor(each / BAND) + 1), 0);
  const starts = new Uint32Array(number + 1);
  for (const each of top) starts[Math.floor(each / BAND) + 1]++;
  for (let band = 0; band < number; band++) starts[band + 1] += starts[band];
  const next = starts.slice(), order = new Uint32Array(top.length);
  let tallest = 0;
  for (let span = 0; span < top.length; span++) {
    order[next[Math.floor(top[span] / BAND)]++] = span;
    tallest = Math.max(tallest, bottom[span] - top[span]);
  }
  return { starts, order, tallest };
}

/** Call `take(job, top, bottom)` for each piece of a job between two dates and two heights. */
export function visit(block, from, to, above, below, take) {
  if (block.earliest >= to || block.latest <= from) return;
  const { starts, order, tallest } = block.bands, { job, top, bottom } = block.spans, last = starts.length - 1;
  if (last < 1) return;
  const start = starts[Math.min(last, Math.max(0, Math.floor((above - tallest) / BAND)))];
  const stop = starts[Math.min(last, Math.max(0, Math.floor(below / BAND) + 1))];
  for (let place = start; place < stop; place++) {
    const span = order[place], of = job[span];
    if (block.begin[of] < to && block.end[of] > from && top[span] < below && bottom[span] > above) take(of, top[span], bottom[span]);
  }
}
