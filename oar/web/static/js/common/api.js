// Requests to the service.
import { site } from "./site.js";

/** An answer that tells what is wrong. */
export class Problem extends Error {
  constructor(record) {
    super(record.detail);
    this.record = record;
  }
}

function address(path, parameters) {
  const url = new URL(`v1/${path}`, site.root);
  for (const [key, value] of Object.entries(parameters ?? {})) {
    if (Array.isArray(value)) for (const each of value) url.searchParams.append(key, each);
    else if (value != null && value !== "" && value !== false) url.searchParams.set(key, value);
  }
  return url;
}

async function send(path, parameters, options) {
  const answer = await fetch(address(path, parameters), options);
  const record = answer.headers.get("content-type")?.includes("json") ? await answer.json() : null;
  if (answer.ok) return record;
  throw new Problem(record ?? { status: answer.status, detail: `${answer.status} ${answer.statusText}` });
}

/** Return what the service has under a path of /v1.  Throws Problem. */
export function get(path, parameters, signal) {
  return send(path, parameters, { signal, cache: "no-cache" });
}

/** Ask the service to do something.  Throws Problem. */
export function post(path, body, more = {}) {
  return change("POST", path, body, more);
}

/** Ask the service to change something.  Throws Problem. */
export function patch(path, body) {
  return change("PATCH", path, body, {});
}

/** Send a record; `more`: headers.  The header of ours shows that it is a page of ours that asks. */
function change(method, path, body, more) {
  const headers = { "X-OAR-Request": "1", ...more, ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
  return send(path, null, { method, headers, body: body === undefined ? null : JSON.stringify(body) });
}

/** Ask the service to end something, or to forget it.  Throws Problem. */
export function remove(path) {
  return send(path, null, { method: "DELETE", headers: { "X-OAR-Request": "1" } });
}

/** Return a key of a request: of several with the same one the first is carried out. */
export function requestKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
