// What somebody wishes of a job, as the form has it: texts of fields.
import { OF_DEFAULT } from "./common/asked.js";
import { t } from "./common/words.js";

const HOUR = 3600, MINUTE = 60;
/** How much longer than the longest of some jobs a walltime should be, and to what it is rounded, in seconds. */
const SPARE = 1.2, STEP = 300;

/** Return the body of a request for the job; `script`: what is stored with it and run in place of a command. */
export function jobOf(wishes, script = "") {
  const { command, name, queue, project, properties, directory = "", array = "", limit = "", after = "", mail = "" } = wishes;
  const words = (text) => text.split(/[ ,]+/).filter(Boolean);
  const body = { ...(script ? { script, scanscript: true } : { command: command || "true" }), name, queue, project, properties, resources: resourcesOf(wishes), types: words(wishes.types), directory, dependencies: words(after), notify: mail && `mail:${mail}` };
  if (Number(array) > 0) body.array = Number(array);
  if (Number(array) > 0 && Number(limit) > 0) body.array_limit = Number(limit);
  return Object.fromEntries(Object.entries(body).filter(([, value]) => value === true || typeof value === "number" || value.length));
}

/** Return what stands behind -l, "" for nothing. */
function resourcesOf({ nodes, gpus = "", each, unit, walltime }) {
  const levels = [nodes && `/network_address=${nodes}`, gpus && `/gpu=${gpus}`, each && `/${unit}=${each}`].filter(Boolean).join("");
  return [levels, walltime && `walltime=${walltime}`].filter(Boolean).join(",");
}

/** Return the options of oarsub that ask for the same. */
export function optionsOf(wishes) {
  const { resources, name, queue, project, properties, directory, notify, array, array_limit: limit, types = [], dependencies = [] } = jobOf(wishes);
  const single = [["-l", resources], ["-n", name], ["-q", queue], ["--project", project], ["-p", properties], ["-d", directory], ["--notify", notify], ["--array", array && `${array}${limit ? `%${limit}` : ""}`]];
  return [...single.filter(([, value]) => value).flat(), ...types.flatMap((type) => ["-t", type]), ...dependencies.flatMap((id) => ["-a", id])];
}

/** A request that the form can have: some nodes and some cores or resources of each, or one of them. */
const SIMPLE = /^-l "(?:\/network_address=(\d+))?(?:\/(core|resource_id)=(\d+))?,walltime=([\d:]+)" ?$/;

/** Return the fields of the form that ask for the same as a job, null if it has none for its request. */
export function fieldsOf(job) {
  const found = SIMPLE.exec(job.resources_asked.replaceAll(OF_DEFAULT, ""));
  if (!found) return null;
  const [, nodes = "", unit = "", each = "", walltime] = found, { command, name, queue, project, types } = job;
  return { command, name: name ?? "", queue, project, properties: givenProperties(job), types: types.join(" "), nodes, unit, each, walltime: written(secondsOf(walltime)) };
}

/** How -p of oarsub may be written: alone, with its argument, behind other letters, or as the beginning of --property. */
const WITH_PROPERTIES = /\s(-[A-Za-z]*p|--prop)/;

/** Return the properties of a job unless its user gave none: then they are what rules have added, and will add again. */
export function givenProperties({ properties, initial_request: request }) {
  return request && !WITH_PROPERTIES.test(request) ? "" : properties ?? "";
}

/** Return what else somebody might wish, {label, changes}: a shorter job, a smaller one, one that may be ended early. */
export function others(wishes) {
  const found = [], seconds = secondsOf(wishes.walltime);
  for (const part of [2, 4]) {
    const walltime = written(seconds / part);
    if (seconds >= part * MINUTE) found.push({ label: t("submit.shorter", { walltime }), changes: { walltime } });
  }
  const half = (name) => Math.floor(Number(wishes[name]) / 2);
  if (half("nodes")) found.push({ label: t("submit.fewer_nodes", { n: half("nodes") }), changes: { nodes: String(half("nodes")) } });
  else if (half("each")) found.push({ label: t("submit.fewer_resources", { n: half("each") }), changes: { each: String(half("each")) } });
  if (!wishes.types.includes("besteffort")) found.push({ label: t("submit.besteffort"), changes: { types: `${wishes.types} besteffort`.trim() } });
  return found;
}

/** Return the seconds of h, h:m or h:m:s; NaN if it is none of them. */
function secondsOf(walltime) {
  if (!/^\d+(:\d{1,2}){0,2}$/.test(walltime)) return NaN;
  const [hours, minutes = 0, seconds = 0] = walltime.split(":").map(Number);
  return hours * HOUR + minutes * MINUTE + seconds;
}

/** Return seconds as h:mm. */
export function written(seconds) {
  const minutes = Math.floor(seconds / MINUTE);
  return `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}`;
}

/** Return the walltime in seconds that is enough for jobs of which the longest took so long. */
export function enoughFor(longest) {
  return Math.max(STEP, Math.ceil((longest * SPARE) / STEP) * STEP);
}
