// What looks the same on every page: jobs, states, nodes, bars, tables.
import { h } from "./dom.js";
import { page } from "./site.js";
import { percent } from "./format.js";
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
/** Conditions of resources, in the order in which they are shown. */
export const CONDITIONS = ["free", "used", "reserved", "draining", "standby", "absent", "suspected", "dead"];
export const CONDITION_WORDS = {
  free: t("condition.free"), used: t("condition.used"), reserved: t("condition.reserved"),
  draining: t("condition.draining"), standby: t("condition.standby"), absent: t("condition.absent"),
  suspected: t("condition.suspected"), dead: t("condition.dead"),
};
/** A letter for each condition: it never is the colour alone that tells. */
export const MARKS = { free: "", used: "", reserved: "r", draining: "d", standby: "z", absent: "a", suspected: "?", dead: "✕" };

/** Show a state of a job; its title is the name that oarstat, filters and programs know. */
export function stateChip(state) {
  return h("span", { class: `state ${state}`, title: t("state.title", { state }) }, h("b", {}, LETTERS[state] ?? "?"), ` ${STATE_WORDS[state] ?? state}`);
}

/** Show a job: its number and name, which open it. */
export function jobLink(job) {
  return h("a", { href: page("jobs", job.id), class: "job" }, h("b", {}, job.id), job.name ? h("bdi", {}, ` ${job.name}`) : null);
}

/** Jobs in front of another one that are named. */
const MOST_NAMED = 2;

/** Show in few words why a job waits, and for which jobs; the whole of it in its title. */
export function waitsFor({ why, code, reason, data }) {
  const jobs = [...new Set([data?.jobs, data?.job].flat())].filter(Number.isSafeInteger), rest = (code === "BUSY" ? data.count : jobs.length) - MOST_NAMED;
  return h("span", { title: reason || null }, h("bdi", {}, why.replace(/^\((.*)\)$/, "$1")),
    jobs.length > 0 && [": ", jobs.slice(0, MOST_NAMED).map((id, place) => [place ? ", " : null, jobLink({ id })]), rest > 0 && ` ${t("nodes.more", { n: rest })}`]);
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
  return [names.slice(0, most).map((name, place) => [place ? ", " : null, nodeLink(name)]), rest > 0 ? ` ${t("nodes.more", { n: rest })}` : null];
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

/** Show a table; `columns` are {key, label, cell(row), kind}. */
export function table(label, columns, rows, keyOf, empty) {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  return h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": label },
    h("table", {},
      h("caption", { class: "unseen" }, label),
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { key: column.key, scope: "col", class: column.kind }, column.label)))),
      h("tbody", {}, rows.map((row) => h("tr", { key: keyOf(row) },
        columns.map((column) => h("td", { key: column.key, class: column.kind, "data-label": typeof column.label === "string" ? column.label : null }, column.cell(row))))))));
}

/** Give a text to the clipboard, and say so on the button. */
export async function copy(text, button) {
  await navigator.clipboard.writeText(text);
  button.dataset.done = t("copied");
  setTimeout(() => delete button.dataset.done, 2000);
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
