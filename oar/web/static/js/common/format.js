// Numbers, dates and lengths of time as people read them.
import { h } from "./dom.js";
import { now, site } from "./site.js";
import { t } from "./words.js";

export const ZONES = ["site", "browser", "utc"];

/** Which zone dates are shown in. */
export function zone() {
  const chosen = localStorage.getItem("oar.zone");
  return ZONES.includes(chosen) && (site.zone || chosen !== "site") ? chosen : site.zone ? "site" : "browser";
}

const names = { site: site.zone, browser: undefined, utc: "UTC" };
const clock = (timeZone) => new Intl.DateTimeFormat("en-CA", {
  timeZone, hourCycle: "h23",
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
});
const chosen = clock(names[zone()]);
let ofSite = null; // a clock takes as long as a page: what few need is made for them
/** Dates have years of four digits, here and in commands; an address may have any number in it. */
const FIRST = Date.UTC(1000, 0, 2) / 1000, LAST = Date.UTC(9999, 11, 30) / 1000;

/** Return the nearest date that can be shown. */
const shown = (seconds) => Math.max(FIRST, Math.min(LAST, seconds));

function written(seconds, by) {
  const { year, month, day, hour, minute, second } = Object.fromEntries(by.formatToParts(shown(seconds) * 1000).map((part) => [part.type, part.value]));
  return `${year}-${month}-${day} ${hour}:${minute}:${second}`;
}

/** Return a date as 2026-11-23 14:05:07. */
export function fullDate(seconds) {
  return written(seconds, chosen);
}

/** Return the name of the zone that dates are shown in. */
export function zoneName() {
  return chosen.resolvedOptions().timeZone;
}

/** Return a date as commands on the cluster take it: in its zone, whichever is chosen. */
export function commandDate(seconds) {
  ofSite ??= zone() === "site" ? chosen : clock(site.zone || undefined);
  return written(seconds, ofSite);
}

/** Return how far the clock of the chosen zone is ahead of UTC, in seconds. */
export function offset(date) {
  const [day, clock] = fullDate(date).split(" ");
  return Math.round((Date.parse(`${day}T${clock}Z`) / 1000 - shown(date)) / 900) * 900;
}

/** Return a date as a field for dates has it, 2026-11-23T14:05, "" for what is none. */
export function fieldDate(seconds) {
  return seconds && seconds === shown(seconds) ? fullDate(seconds).slice(0, 16).replace(" ", "T") : "";
}

/** Return the date that stands in such a field, NaN for none. */
export function dateOf(text) {
  const date = Date.parse(`${text}Z`) / 1000;
  if (Number.isNaN(date)) return NaN;
  return date - offset(date - offset(date));
}

/** Return a date as 14:05 if it is today, else as 11-23 14:05, of other years with the year. */
export function shortDate(seconds) {
  const date = fullDate(seconds), today = fullDate(now());
  if (date.slice(0, 10) === today.slice(0, 10)) return date.slice(11, 16);
  return date.slice(0, 4) === today.slice(0, 4) ? date.slice(5, 16) : date.slice(0, 16);
}

/** Show a date: short, the full one in its title. */
export function time(seconds) {
  if (!seconds) return h("span", { class: "none" }, "–");
  const iso = new Date(shown(seconds) * 1000).toISOString();
  return h("time", { datetime: iso, title: `${fullDate(seconds)} ${zoneName()}` }, shortDate(seconds));
}

/** Return a length of time as 1d 02:03; what is shorter than a minute as 12 s. */
export function duration(seconds) {
  if (seconds == null) return "–";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const days = Math.floor(whole / 86400);
  const two = (number) => String(number).padStart(2, "0");
  const clock = `${two(Math.floor((whole % 86400) / 3600))}:${two(Math.floor((whole % 3600) / 60))}`;
  return days ? `${days}d ${clock}` : clock;
}

const UNITS_OF_TIME = [[86_400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

/** Return a length of time by its two largest units: 2 h, 1 h 17 min. */
export function amount(seconds) {
  const first = UNITS_OF_TIME.findIndex(([size]) => seconds >= size);
  if (first < 0) return "0 s";
  const least = UNITS_OF_TIME[Math.min(first + 1, UNITS_OF_TIME.length - 1)][0];
  let rest = Math.round(seconds / least) * least;
  const parts = UNITS_OF_TIME.map(([size, unit]) => {
    const count = Math.floor(rest / size);
    rest -= count * size;
    return count && (unit === "d" ? t("unit.days", { count }) : `${count} ${unit}`);
  });
  return parts.filter(Boolean).slice(0, 2).join(" ");
}

const integers = new Intl.NumberFormat(site.language);

/** Return a number with the marks of the language. */
export function number(value) {
  return integers.format(value);
}

/** Return a share as 87 %; what is there is never 0 %. */
export function percent(part, whole) {
  const share = whole ? Math.round((100 * part) / whole) : 0;
  return share === 0 && whole && part > 0 ? "< 1 %" : `${share} %`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Return an amount of bytes as 3.9 GiB. */
export function bytes(amount) {
  if (amount == null) return "–";
  const power = Math.min(UNITS.length - 1, Math.floor(Math.log2(Math.max(1, amount)) / 10));
  return `${(amount / 1024 ** power).toFixed(power ? 1 : 0)} ${UNITS[power]}`;
}

/** Compare names as people sort them: n2 before n10. */
export const naturally = new Intl.Collator("en", { numeric: true }).compare;
