// What somebody wishes of an advance reservation, as its forms have it: texts of fields, dates in epoch seconds.
import { commandDate } from "./common/format.js";
import { quoted } from "./common/parts.js";

/** Fields that are sent as they are, with the options that ask for the same. */
const TEXTS = { name: "-N", account: "-A", project: "-project", hosts: "-h", properties: "-p", window: "-window", idle: "-idle", rule: "-rrule" };
const FLAGS = { hard: "-he", replace: "-replace" };

/** Return the body of a request for the reservation; dates and texts that are empty are not in it. */
export function reservationOf(wishes) {
  const body = { start: Number(wishes.from) || null, end: Number(wishes.to) || null, ...dated(TEXTS, wishes) };
  const levels = [wishes.nodes && `/network_address=${wishes.nodes}`, wishes.each && `/${wishes.unit}=${wishes.each}`].filter(Boolean).join("");
  if (levels) body.resources = [levels];
  if (wishes.users) body.users = wishes.users.split(/[ ,]+/).filter(Boolean);
  for (const name of Object.keys(FLAGS)) if (wishes[name]) body[name] = wishes[name] === "yes";
  if (wishes.earliest) body.earliest = true;
  return Object.fromEntries(Object.entries(body).filter(([, value]) => value !== null && value !== ""));
}

function dated(names, wishes) {
  return Object.fromEntries(Object.keys(names).map((name) => [name, wishes[name]?.trim() ?? ""]));
}

/** Return the command line that asks for what a body does: qrsub, or qralter with a number. */
export function commandOf(body, number = null) {
  const minute = (date) => commandDate(date).slice(0, 16);
  const words = [number === null ? "qrsub" : "qralter"];
  if (body.start) words.push("-a", minute(body.start));
  if (body.end) words.push("-e", minute(body.end));
  for (const levels of body.resources ?? []) words.push("-l", levels);
  for (const [name, option] of Object.entries(TEXTS)) if (body[name] !== undefined) words.push(option, body[name] ?? "");
  if (body.users) words.push("-u", body.users.join(","));
  for (const [name, option] of Object.entries(FLAGS)) if (name in body) words.push(option, body[name] ? "yes" : "no");
  if (body.earliest) words.push("-earliest");
  if (number !== null) words.push(String(number));
  return words.map(quoted).join(" ");
}
