// Holds the jobs of the diagram, and paints tiles of it, so that the page never waits.
import { place, readChunk, readLive, visit, word } from "./blocks.js";
import { cssOf, ofEfficiency, ofWord, OUTCOME_COLOURS, STATE_COLOURS, whole } from "./colours.js";
import { chunkPath, dayOf, daysPath, endOf, lastDate, livePath, meets, rowsPath } from "./paths.js";
import { layOut, pieces } from "./rows.js";
import { Present } from "./present.js";
import { lookOf, Tile } from "./paint.js";

/** Days of one question; jobs that are held at most. */
const MOST_DAYS = 300, MOST_JOBS = 500_000;
const DAY = 86400;
/** Jobs up to which days are fetched ahead. */
const MOST_AHEAD = 100_000;
/** Jobs of a list; groups of the legend. */
const LISTED = 1000, COUNTED = 12;
/** Pieces in which a day that goes on is held, before it is fetched as a whole again. */
const MOST_TAILS = 60;
/** Seconds by which the end of a job may be older than when it is told. */
const LATE = 60;
/** So many days are fetched at the same time. */
const AT_ONCE = 4;

/** Seconds after which it is asked anew what ended on all days: jobs may have been removed. */
const WHOLE = 600;

const chunks = new Map(); // day -> block
const days = new Map(); // day -> what the index tells of it
const coming = new Map(); // day -> what is being fetched of it
let known = null, learning = Promise.resolve(); // of which period it tells, and when it was asked for
let root = "", layout = null, rowRecord = null, live = null, look = null, filter = {}, ahead = 0, asked = 0, rowsAsked = "";
let tiles = [], isPainting = false;
let cursor = ""; // names what is known of what goes on
let looking = Promise.resolve();
const present = new Present();
const turns = new MessageChannel(); // between two tiles other messages have their turn; a timer waits longer for that
turns.port1.onmessage = paint;
let shape = { folded: new Set(), word: "" };
/** What has to be there before anything is painted. */
const lacking = new Set(["live", "period"]);

function now() {
  return Date.now() / 1000 + ahead;
}

function blocks() {
  const all = [...chunks.values()].flatMap((block) => [block, ...block.tails]);
  return live ? [...all, live] : all;
}

async function ask(path, kind = "json") {
  const answer = await fetch(new URL(`v1/gantt/${path}`, root), { cache: path.includes("?v=") ? "default" : "no-cache" });
  if (answer.ok) return answer[kind]();
  const record = await answer.json().catch(() => null);
  throw new Error(record?.detail ?? `${answer.status} ${answer.statusText}`);
}

/** What is done with each message of the page; what it answers goes back with the number of the message. */
const TAKES = {
  begin(message) {
    ({ root, ahead, filter } = message);
  },
  look(message) {
    look = lookOf(message.look);
  },
  filter(message) {
    filter = message.filter;
  },
  async rows({ levels }) {
    rowsAsked = levels;
    const record = await ask(rowsPath(levels));
    if (levels !== rowsAsked) return null;
    rowRecord = record;
    return arrange();
  },
  shape({ folded, word: text }) {
    shape = { folded: new Set(folded), word: text };
    return rowRecord && arrange();
  },
  live() {
    looking = looking.catch(() => {}).then(follow); // one after the other: an answer is a difference to the one before
    return looking;
  },
  period,
  ahead: (message) => fetchAhead(message).catch(() => {}), // the page asks for what it then misses
  tiles(message) {
    tiles = message.tiles;
    if (!isPainting) paint();
  },
  hit: ({ date, height, reach }) => hit(date, height, reach),
  box: ({ id }) => boxes(id),
  pieces: ({ sets }) => layout && sets.map(piecesOf),
  walk: (message) => walk(message),
  count: (message) => count(message),
  list: ({ from, to }) => list(from, to),
  async drawing({ sight, look: asked }) {
    const { drawing } = await import("./drawing.js"); // few take the diagram away
    return drawing({ blocks: blocks(), wanted: chooser(), look: lookOf(asked), now: now() }, sight);
  },
};

onmessage = async ({ data }) => {
  try {
    const answer = await TAKES[data.kind](data);
    if (data.number) postMessage({ number: data.number, answer });
    if (lacking.delete(data.kind) && !isPainting) paint();
  } catch (error) {
    postMessage({ number: data.number, trouble: error instanceof TypeError ? "" : error.message });
  }
};

function arrange() {
  layout = layOut(rowRecord, shape.folded, shape.word);
  for (const block of blocks()) place(block, layout.segments, pieces);
  return { rows: layout.rows, groups: layout.groups, properties: rowRecord.properties };
}

/** Ask what has changed of what goes on; return whether anything has. */
async function follow() {
  const told = await ask(livePath(cursor));
  if (told.cursor === cursor) return false;
  cursor = told.cursor;
  live = readLive(present.take(told));
  if (layout) place(live, layout.segments, pieces);
  return true;
}

/** Fetch the days on which something ended that began before the end of the period; what was moved to (`isMove`) needs no news. */
async function period({ from, to, isMove }) {
  const mine = ++asked, start = dayOf(from);
  learning = learning.catch(() => {}).then(() => learn(start, isMove)); // one after the other: each builds on what is known
  await learning;
  if (mine !== asked) return null;
  const met = [...days.values()].filter((item) => meets(item, from, to)).sort((a, b) => b.end - a.end);
  let jobs = 0;
  const wanted = met.filter((item) => (jobs += item.jobs) <= MOST_JOBS);
  const missing = wanted.filter((item) => chunks.get(item.day)?.version !== item.version);
  const fresh = missing.length;
  const take = async () => {
    while (missing.length && mine === asked) await chunk(missing.shift());
  };
  await Promise.all(Array.from({ length: AT_ONCE }, take));
  if (mine !== asked) return null;
  for (const day of chunks.keys()) if (jobs > MOST_JOBS && !wanted.some((item) => item.day === day)) chunks.delete(day);
  return { isCut: wanted.length < met.length, since: wanted.at(-1)?.day, fresh };
}

/** Fetch days that may be looked at next, one by one, until something is asked for or enough jobs are held. */
async function fetchAhead({ from, to }) {
  const mine = asked;
  learning = learning.catch(() => {}).then(() => learn(dayOf(from), true));
  await learning;
  let held = [...chunks.values()].reduce((sum, block) => sum + block.jobs, 0);
  for (const item of [...days.values()].filter((each) => meets(each, from, to) && !chunks.has(each.day))) {
    held += item.jobs;
    if (mine !== asked || held > MOST_AHEAD) return;
    await chunk(item);
  }
}

/** Return the periods of which it is not known what ended in them: earlier ones, and what may have ended since it was asked. */
function unknown(start, isMove) {
  const last = lastDate(now());
  if (!known || (!isMove && now() - known.whole > WHOLE)) {
    days.clear();
    known = { from: start, to: now(), whole: now() };
    return [[start, last]];
  }
  const found = isMove ? [] : [[Math.max(start, known.to - DAY), last]];
  if (start < known.from) found.push([start, known.from - 1]);
  known = { ...known, from: Math.min(start, known.from), to: isMove ? known.to : now() };
  return found;
}

/** Ask what ended in the periods of which it is not known. */
async function learn(start, isMove) {
  const wanted = unknown(start, isMove);
  try {
    for (const [begin, end] of wanted) await index(begin, end);
  } catch (error) {
    known = null;
    throw error;
  }
}

async function index(begin, end) {
  for (let at = begin; at < end; at += MOST_DAYS * DAY) {
    const to = Math.min(end, at + MOST_DAYS * DAY - 1);
    const { items } = await ask(daysPath(at, to));
    for (const item of items) days.set(item.day, { ...item, end: endOf(item) });
  }
}

/** Have what ended on a day as it is known of; one after the other, since both a move and news may ask for it. */
async function chunk(item) {
  const turn = (coming.get(item.day) ?? Promise.resolve()).catch(() => {}).then(() => fetched(days.get(item.day) ?? item));
  coming.set(item.day, turn);
  await turn.finally(() => coming.get(item.day) === turn && coming.delete(item.day));
}

/** Fetch what ended on a day: of a day that goes on, of which the most is known, only what ended since. */
async function fetched(item) {
  const held = chunks.get(item.day), asked = now();
  if (held?.version === item.version) return;
  if (held && item.end > asked && (await followed(held, item))) return;
  const block = readChunk(await ask(chunkPath(item), "arrayBuffer"));
  Object.assign(block, { version: item.version, tails: [], total: block.jobs, asked });
  if (layout) place(block, layout.segments, pieces);
  chunks.set(item.day, block);
}

/** Add what has ended since to what is known of a day; return whether that is all of it: jobs may have been removed. */
async function followed(held, item) {
  if (held.tails.length >= MOST_TAILS) return false;
  const since = Math.max(item.end - DAY + 1, Math.floor(held.asked - LATE)), asked = now();
  const tail = readChunk(await ask(chunkPath(item, since), "arrayBuffer"));
  const { jobs, states } = endedSince([held, ...held.tails], since);
  tail.isKnown = (job) => jobs.has(tail.id[job]);
  tail.isKnownState = (state) => states.has(nameOf(tail.states, state));
  const total = held.total + tail.id.reduce((sum, id) => sum + !jobs.has(id), 0);
  if (total < item.jobs) return false;
  if (layout) place(tail, layout.segments, pieces);
  held.tails.push(tail);
  Object.assign(held, { version: item.version, total, asked });
  return true;
}

/** Return the ids of jobs, and the names of states of resources, that ended at a date or later. */
function endedSince(parts, since) {
  const jobs = new Set(), states = new Set();
  for (const part of parts) {
    part.end.forEach((end, job) => end >= since && jobs.add(part.id[job]));
    part.states.end.forEach((end, state) => end >= since && states.add(nameOf(part.states, state)));
  }
  return { jobs, states };
}

function nameOf({ first, begin, end }, state) {
  return `${first[state]} ${begin[state]} ${end[state]}`;
}

/** Whether a job is one that the filters choose. */
function wanted(block, job) {
  for (const name of ["user", "queue", "project", "state", "outcome", "efficiency"]) if (filter[name] && word(block, name, job) !== filter[name]) return false;
  const types = word(block, "types", job);
  if (filter.type && types !== filter.type && !types.split(" ").includes(filter.type)) return false;
  const text = filter.q?.toLowerCase();
  return !text || String(block.id[job]) === text || word(block, "name", job).toLowerCase().includes(text) || word(block, "user", job).toLowerCase().includes(text);
}

/** Return what tells which jobs are painted as those that are chosen; null: all are. */
function chooser() {
  return Object.values(filter).some(Boolean) ? wanted : null;
}

/** Paint the tiles that are wanted, one by one; what is wanted may change meanwhile. */
function paint() {
  const next = layout && !lacking.size && tiles.shift();
  isPainting = Boolean(next);
  if (!next) return;
  const tile = new Tile(next.width, next.height);
  tile.paint({ blocks: blocks(), wanted: chooser(), look, now: now() }, next);
  createImageBitmap(tile.pixels).then((picture) => {
    postMessage({ tile: next.key, picture, names: tile.names, painted: now() }, [picture]);
    turns.port2.postMessage(null);
  });
}

/** Return a job as a record. */
function record(block, job) {
  const words = Object.fromEntries(["user", "project", "queue", "name", "types", "state", "kind", "outcome", "efficiency"].map((name) => [name, word(block, name, job)]));
  return {
    ...words, id: block.id[job], begin: block.begin[job], end: block.end[job], walltime: block.walltime[job],
    submitted: block.submitted[job], phase: block.phase[job], reason: block.reason?.[job] ?? "",
    resources: resources(block, job),
  };
}

function resources(block, job) {
  let range = 0, sum = 0;
  for (let other = 0; other < job; other++) range += block.ranges[other];
  for (let each = range; each < range + block.ranges[job]; each++) sum += block.rangeCount[each];
  return sum;
}

/** Return what is at a place: a job, else a state of resources. */
function hit(date, height, reach) {
  let best = null, least = Infinity;
  for (const block of blocks()) {
    visit(block, date - reach, date + reach, height, height + 1e-9, (job, top, bottom) => {
      if (bottom - top <= least) (best = [block, job]), (least = bottom - top);
    });
  }
  const row = layout?.rows[Math.floor(height)];
  const label = row && { label: row.label, group: row.group, number: row.number };
  const frames = (live?.frames ?? []).filter((each) => each.from <= date && each.to > date && each.pieces.some(([top, bottom]) => top <= height && bottom > height));
  const reservations = frames.map(({ id, name, user, from, to }) => ({ id, ar_name: name, user, from, to }));
  if (best) return { job: record(...best), row: label, reservations };
  return { reservations, states: blocks().flatMap((block) => statesAt(block, date, height)), row: label };
}

function statesAt(block, date, height) {
  const { of, top, bottom } = block.stateSpans, { begin, end, state } = block.states, found = [];
  of.forEach((each, span) => {
    if (begin[each] <= date && end[each] > date && top[span] <= height && bottom[span] > height) {
      found.push({ state: block.words.states[state[each]], begin: begin[each], end: end[each] });
    }
  });
  return found;
}

/** Return where ranges of resources are among the rows: [top, bottom] of each piece. */
function piecesOf(ranges) {
  const found = [];
  for (const [first, count] of ranges) pieces(layout.segments, first, count, (top, bottom) => found.push([top, bottom]));
  return found;
}

/** Return the pieces of a job, and its record. */
function boxes(id) {
  const found = [];
  let told = null;
  for (const block of blocks()) {
    const job = block.id.indexOf(id);
    if (job < 0) continue;
    told = record(block, job);
    block.spans.job.forEach((of, span) => of === job && found.push([block.begin[job], block.end[job], block.spans.top[span], block.spans.bottom[span]]));
  }
  return { job: told, boxes: found };
}

/** Return each job between two dates and two heights once: {id, block, job, top, begin}. */
function seen(from, to, top, bottom) {
  const found = new Map();
  for (const block of blocks()) {
    visit(block, from, to, top, bottom, (job, height) => {
      const id = block.id[job];
      if (!wanted(block, job) || found.get(id)?.top <= height) return;
      found.set(id, { id, block, job, top: height, begin: block.begin[job] });
    });
  }
  return [...found.values()];
}

/** Return the job behind another one, or before it, as one reads: by rows, then by dates. */
function walk({ from, to, top, bottom, id, step }) {
  const all = seen(from, to, top, bottom).sort((a, b) => a.top - b.top || a.begin - b.begin || a.id - b.id);
  const here = all.findIndex((each) => each.id === id);
  const next = all[here < 0 ? (step > 0 ? 0 : all.length - 1) : here + step];
  return next ? { ...boxes(next.id) } : null;
}

/** Count the jobs in sight by what gives them their colour. */
function count({ from, to, top, bottom }) {
  const isOfJobs = look.by === "job" || look.by === "mine", name = isOfJobs ? "state" : look.by, numbers = new Map();
  const all = seen(from, to, top, bottom);
  for (const { block, job } of all) {
    const told = word(block, name, job);
    numbers.set(told, (numbers.get(told) ?? 0) + 1);
  }
  const groups = [...numbers].sort(([, a], [, b]) => b - a);
  const colours = { state: (told) => look[STATE_COLOURS[told] ?? "used"], outcome: (told) => look[OUTCOME_COLOURS[told] ?? "used"], efficiency: (told) => ofEfficiency(told) ?? look.faint };
  const colour = (told) => (isOfJobs ? null : cssOf(colours[name]?.(told) ?? whole(ofWord(told))));
  return { jobs: all.length, name, rest: groups.slice(COUNTED).length, groups: groups.slice(0, COUNTED).map(([told, number]) => ({ told, number, colour: colour(told) })) };
}

function list(from, to) {
  const all = seen(from, to, -1, layout ? layout.rows.length + 1 : 0).sort((a, b) => a.begin - b.begin || a.id - b.id);
  return { total: all.length, items: all.slice(-LISTED).map(({ block, job }) => ({ ...record(block, job), nodes: namesOf(block, job) })) };
}

/** Return the rows on which a job is. */
function namesOf(block, job) {
  const names = new Set();
  block.spans.job.forEach((of, span) => {
    if (of !== job) return;
    for (let row = Math.floor(block.spans.top[span] + 1e-6); row < block.spans.bottom[span] - 1e-6; row++) names.add(layout.rows[row].label);
  });
  return [...names];
}
