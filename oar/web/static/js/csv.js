// Records as a table for other programs.
import { fullDate } from "./common/format.js";

/** Return records as CSV: the fields `names`, of which `dates` are epoch seconds. */
export function csv(items, names, dates) {
  const cell = (item, name) => {
    const value = item[name] == null ? "" : dates.includes(name) ? fullDate(item[name]) : String(item[name]);
    const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value; // a table program would compute it
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [names.join(), ...items.map((item) => names.map((name) => cell(item, name)).join())].join("\r\n");
}
