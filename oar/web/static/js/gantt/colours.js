// The colours of jobs.

/** The part of a turn by which the hues of neighbouring jobs differ: people know the jobs by them from DrawGantt. */
const GOLDEN = 0.618033988749895;
/** Colours that people with each kind of colour blindness tell apart (Okabe and Ito), for users, queues, projects. */
export const SERIES = [[230, 159, 0], [86, 180, 233], [0, 158, 115], [240, 228, 66], [0, 114, 178], [213, 94, 0], [204, 121, 167]];
/** How much white or black is in them, so that there are more. */
const SHADES = [0, 0.35, -0.3];
/** Which condition's colour a state of a job has. */
export const STATE_COLOURS = {
  Terminated: "done", Error: "suspected", Running: "used", Suspended: "draining", Resuming: "draining",
  Waiting: "waiting", Hold: "waiting", toAckReservation: "waiting",
};

/** The same of an outcome. */
export const OUTCOME_COLOURS = {
  done: "done", failed: "suspected", timeout: "suspected", "out-of-memory": "suspected", cancelled: "faint",
  evicted: "draining", "node-failure": "dead", expired: "faint",
};

/** From what is hardly used to what is used well: from dark to light, as everybody can tell them apart. */
const STEPS = [[0, 34, 78], [66, 78, 108], [122, 121, 126], [184, 171, 108], [253, 231, 37]];

/** Return the colour of a step of efficiency, whose text begins with its percents; null of one that nobody knows. */
export function ofEfficiency(text) {
  return text ? whole(STEPS[Math.floor(parseInt(text, 10) / (100 / STEPS.length))]) : null;
}

/** Return a number that stands for a word, the same on every page. */
export function spread(word) {
  let sum = 7;
  for (const letter of word) sum = (sum * 31 + letter.codePointAt(0)) % 1_000_003;
  return sum;
}

/** Return a colour that is one number as style sheets have it. */
export function cssOf(colour) {
  return `#${colour.toString(16).padStart(6, "0")}`;
}

/** Return a colour as one number. */
export function whole([red, green, blue]) {
  return (red << 16) | (green << 8) | blue;
}

/** The hues of violet, in parts of a turn: it is the colour of reservations, and no job has it. */
const VIOLET = [240 / 360, 285 / 360];
/** So many hues are told apart; the colours that were asked for, of dark pages and of light ones. */
const HUES = 720, found = [[], []];

/** Return the colour of a job by its number, [red, green, blue]. */
export function ofJob(id, isDark) {
  const hue = Math.floor(((id * GOLDEN) % 1) * HUES);
  return (found[isDark ? 0 : 1][hue] ??= fromHue(besideViolet(hue / HUES), 0.6, isDark ? 0.45 : 0.68));
}

/** Return a hue of the turn without violet. */
function besideViolet(hue) {
  const [first, last] = VIOLET, place = hue * (1 - last + first);
  return place < first ? place : place + last - first;
}

/** Return the colour of a user, a queue, a project. */
export function ofWord(word) {
  const number = spread(word), shade = SHADES[Math.floor(number / SERIES.length) % SHADES.length];
  return SERIES[number % SERIES.length].map((each) => Math.round(shade < 0 ? each * (1 + shade) : each + (255 - each) * shade));
}

/** Return a colour of the style sheet, #rrggbb, as numbers. */
export function parsed(colour) {
  return [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
}

function fromHue(hue, saturation, lightness) {
  const reach = saturation * Math.min(lightness, 1 - lightness);
  return [0, 8, 4].map((shift) => {
    const turn = (shift + hue * 12) % 12;
    return Math.round(255 * (lightness - reach * Math.max(-1, Math.min(turn - 3, 9 - turn, 1))));
  });
}
