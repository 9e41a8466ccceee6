// What looks the same on every page: jobs, states, nodes, bars, tables.
import { h } from "./dom.js";
import { page, site } from "./site.js";
import { naturally, percent } from "./format.js";
import { WAITED } from "./waited.js";
import { t } from "./words.js";

/** Letter of each state of a job, as oarstat prints it. */
export const LETTERS = {
  Waiting: "W", Hold: "H", toAckReservation: "W", toLaunch: "L", Launching: "L", Running: "R",
  Suspended: "S", Resuming: "S", Finishing: "F", toError: "E", Error: "E", Terminated: "T",
};
/** What states are called in the language of the page; their names for programs stay English. */
export const STATE_WORDS = {
  Waiting: t("state.Waiting"), Hold: t("state.Hold"), toAckReservation: t("state.toAckReservation"),
  toLaunch: t("state.toLaunch"), Launching: t("state.Launching"), Running: t("state.Running"),
  Suspended: t("state.Suspended"), Resuming: t("state.Resuming"), Finishing: t("state.Finishing"),
  toError: t("state.toError"), Error: t("state.Error"), Terminated: t("state.Terminated"),
};
/** What outcomes of ended jobs are called in the language of the page; what is not known is told by the state. */
export const OUTCOME_WORDS = {
  done: t("outcome.done"), failed: t("outcome.failed"), timeout: t("outcome.timeout"), "out-of-memory": t("outcome.out-of-memory"),
  cancelled: t("outcome.cancelled"), evicted: t("outcome.evicted"), "node-failure": t("outcome.node-failure"), expired: t("outcome.expired"),
};
/** Conditions of resources, in the order in which they are shown. */
export const CONDITIONS = ["free", "used", "reserved", "draining", "standby", "absent", "suspected", "dead"];
export const CONDITION_WORDS = {
  free: t("condition.free"), used: t("condition.used"), reserved: t("condition.reserved"),
  draining: t("condition.draining"), standby: t("condition.standby"), absent: t("condition.absent"),
  suspected: t("condition.suspected"), dead: t("condition.dead"),
};
/** What states of resources are called in the language of the page. */
export const RESOURCE_WORDS = { Alive: t("resource.Alive"), Absent: t("resource.Absent"), Suspected: t("resource.Suspected"), Dead: t("resource.Dead") };
/** What states of advance reservations mean. */
const RESERVATION_WORDS = { w: t("reservation.w"), r: t("reservation.r"), E: t("reservation.E"), W: t("reservation.W"), d: t("reservation.d"), x: t("reservation.x") };
/** So many resources in each condition, in words. */
const COUNTED = {
  free: (n) => t("count.free", { n }), used: (n) => t("count.used", { n }), reserved: (n) => t("count.reserved", { n }),
  draining: (n) => t("count.draining", { n }), standby: (n) => t("count.standby", { n }), absent: (n) => t("count.absent", { n }),
  suspected: (n) => t("count.suspected", { n }), dead: (n) => t("count.dead", { n }),
};
/** Return how many resources are in each condition, [text]. */
export function counted(numbers) {
  return CONDITIONS.filter((each) => numbers[each]).map((each) => COUNTED[each](numbers[each]));
}

/** A letter for each condition: it never is the colour alone that tells. */
export const MARKS = { free: "", used: "", reserved: "r", draining: "d", standby: "z", absent: "a", suspected: "?", dead: "✕" };

/** Show a state of a job; its title is the name that oarstat, filters and programs know. */
export function stateChip(state) {
  return h("span", { class: `state ${state}`, title: t("state.title", { state }) }, h("b", {}, LETTERS[state] ?? "?"), ` ${STATE_WORDS[state] ?? state}`);
}

/** Show the state of a job, of an ended one its outcome; how its command failed has a colour of its own. */
export function jobState(job) {
  const state = OUTCOME_WORDS[job.outcome] ? outcomeChip(job) : stateChip(job.state);
  if (!job.exit_code || !["failed", "unknown", undefined, null].includes(job.outcome)) return state;
  const { code, signal } = exitOf(job.exit_code);
  return [state, " ", h("span", { class: "state failed" }, signal ? t("state.signal", { signal }) : t("state.exit", { code }))];
}

function outcomeChip({ state, outcome }) {
  return h("span", { class: `state ${outcome}`, title: t("state.title", { state }) }, h("b", {}, LETTERS[state] ?? "?"), ` ${OUTCOME_WORDS[outcome]}`);
}

/** Return how a command ended, {code, signal}, from its wait status: 768 is exit code 3, 9 is signal 9. */
export function exitOf(status) {
  return { code: status >> 8, signal: status & 127 };
}

/** Show a state of a resource; its title is the name that oarnodes, filters and programs know. */
export function resourceState(state) {
  return h("span", { title: t("resource.title", { state }) }, RESOURCE_WORDS[state] ?? state);
}

/** Show a state of an advance reservation: its letter, as qrstat prints it, and what that means. */
export function reservationState(state) {
  return h("span", { class: "state" }, h("b", {}, state), ` ${RESERVATION_WORDS[state] ?? ""}`);
}

/** Show a job: its number and name, which open it. */
export function jobLink(job) {
  return h("a", { href: page("jobs", job.id), class: "job" }, h("b", {}, job.id), job.name ? h("bdi", {}, ` ${job.name}`) : null);
}

/** Show a text that the service has written: it is English on all pages. */
export function english(text) {
  return h("bdi", { lang: site.language === "en" ? null : "en" }, text);
}

/** Events within so many seconds that differ in their job or nodes only are one line. */
const TOGETHER = 300;

/** Return events in their order; like ones that follow each other are one, {...event, events, jobs, nodes}. */
export function eventGroups(events) {
  const groups = [];
  for (const event of events) {
    const sense = senseOf(event), last = groups.at(-1);
    if (last?.sense === sense && Math.abs(last.date - event.date) < TOGETHER) last.events.push(event);
    else groups.push({ ...event, sense, events: [event] });
  }
  return groups.map((group) => ({
    ...group, jobs: [...new Set(group.events.map(({ job }) => job).filter(Boolean))], nodes: [...new Set(group.events.flatMap(({ nodes }) => nodes))],
  }));
}

function senseOf({ type, sentence, job, nodes }) {
  return [type, [job ?? "", ...nodes].filter((name) => name !== "").reduce((text, name) => text.replaceAll(String(name), "#"), sentence)].join(" ");
}

/** Show a group of events as its sentence; administrators also see the type. */
export function eventSentence({ sentence, type, text, events }) {
  const n = events.length;
  return [h("span", { title: text && text !== sentence ? text : null }, english(sentence)), n > 1 && ` ${t("event.more", { n: n - 1 })}`, site.administers && [" ", h("small", { class: "faint" }, eventType(type))]];
}

/** Show the jobs of a group of events. */
export function eventJobs({ jobs }, most = 3) {
  const rest = jobs.length - most;
  return [jobs.slice(0, most).map((id, place) => [place ? ", " : null, jobLink({ id })]), rest > 0 ? ` ${t("nodes.more", { n: rest })}` : null];
}

/** Show the type of an event, which may be broken between its words. */
function eventType(type) {
  return h("span", {}, type.split(/(?<=_)/).map((word, place) => [place ? h("wbr", {}) : null, word]));
}

/** Jobs in front of another one that are named. */
const MOST_NAMED = 2;

/** Show in few words why a job waits, and for which jobs; the whole of it in its title. */
export function waitsFor({ why, code, reason, data }) {
  const jobs = [...new Set([data?.jobs, data?.job].flat())].filter(Number.isSafeInteger), rest = (code === "BUSY" ? data.count : jobs.length) - MOST_NAMED;
  const reservations = data?.advance_reservations ?? [];
  const word = reservations.length ? t("word.reservation") : site.language === "en" ? null : WAITED[code]; // the word of the service is English
  return h("span", { title: reason || null }, h("bdi", {}, word ?? why.replace(/^\((.*)\)$/, "$1")),
    reservations.length > 0 && [t("colon"), reservations.map((id, place) => [place ? ", " : null, reservationLink({ id })])],
    jobs.length > 0 && [reservations.length ? " · " : t("colon"), jobs.slice(0, MOST_NAMED).map((id, place) => [place ? ", " : null, jobLink({ id })]), rest > 0 && ` ${t("nodes.more", { n: rest })}`]);
}

/** Show an advance reservation: its number and name, which open it. */
export function reservationLink(reservation) {
  return h("a", { href: page("reservations", reservation.id), class: "job" }, h("b", {}, reservation.id), reservation.ar_name ? h("bdi", {}, ` ${reservation.ar_name}`) : null);
}

/** Show a node, which opens it. */
export function nodeLink(name) {
  return h("a", { href: page("nodes", name), class: "node" }, h("bdi", {}, name));
}

/** Show nodes; of many the first. */
export function nodeLinks(names, most = 3) {
  const rest = names.length - most;
  return [names.toSorted(naturally).slice(0, most).map((name, place) => [place ? ", " : null, nodeLink(name)]), rest > 0 ? ` ${t("nodes.more", { n: rest })}` : null];
}

/** Show how much of the whole each condition is, as a bar; the numbers stand beside it. */
export function conditionBar(numbers, total) {
  let from = 0;
  const pieces = CONDITIONS.filter((each) => numbers[each]).map((each) => {
    const width = (100 * numbers[each]) / total;
    const piece = h("rect", { key: each, class: `fill-${each}`, x: from, y: 0, width, height: 10 });
    from += width;
    return piece;
  });
  const label = CONDITIONS.filter((each) => numbers[each]).map((each) => `${CONDITION_WORDS[each]} ${numbers[each]}`).join(", ");
  return h("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": label || t("nodes.none") }, pieces);
}

/** Show a share as a bar with its number. */
export function shareBar(part, whole) {
  const width = whole ? Math.min(100, (100 * part) / whole) : 0;
  return h("span", { class: "share" },
    h("svg", { class: "bar small", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
      h("rect", { class: "fill-used", x: 0, y: 0, width, height: 10 })),
    h("span", {}, percent(part, whole)));
}

/** Show the conditions that there are with their numbers. */
export function legend(numbers, chosen, choose) {
  return h("ul", { class: "legend" }, CONDITIONS.filter((each) => numbers[each]).map((each) =>
    h("li", { key: each }, h(choose ? "button" : "span", choose
      ? { type: "button", class: "chip", "aria-pressed": String(chosen === each), on: { click: () => choose(chosen === each ? "" : each) } }
      : { class: "chip" },
    h("i", { class: `box fill-${each}`, "aria-hidden": "true" }, MARKS[each]), ` ${CONDITION_WORDS[each]} `, h("b", {}, numbers[each])))));
}

/** Show a table; `columns` are {key, label, cell(row), kind, sorted}; `sorted`: "ascending" or "descending" if it is sorted by this one. */
export function table(label, columns, rows, keyOf, empty) {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  return h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": label },
    h("table", {},
      h("caption", { class: "unseen" }, label),
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { key: column.key, scope: "col", class: column.kind, "aria-sort": column.sorted }, column.label)))),
      h("tbody", {}, rows.map((row) => h("tr", { key: keyOf(row) },
        columns.map((column) => h("td", { key: column.key, class: column.kind }, column.cell(row))))))));
}

/** Show a switch between halves of a page, [value, word]; `choose(value)` is told of a click. */
export function switched(label, halves, chosen, choose) {
  return h("div", { class: "switch", key: "switch", role: "group", "aria-label": label },
    halves.map(([value, word]) => h("button", { type: "button", key: value, "aria-pressed": String(value === chosen), on: { click: () => choose(value) } }, word)));
}

/** Give a text to the clipboard, and say so on the button. */
export async function copy(text, button) {
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else copySelected(text); // browsers have no clipboard for pages that come by plain HTTP
  button.dataset.done = t("copied");
  setTimeout(() => delete button.dataset.done, 2000);
}

function copySelected(text) {
  const field = document.createElement("textarea"), { activeElement } = document;
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
  activeElement?.focus();
}

/** Offer a text as a file. */
export function download(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Quote a word for a shell. */
export function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
