// What happens, as it happens.  One stream for a browser: a shared worker holds it; where there is none, the page
// that has the lock does and tells the others.  While nothing is told, pages ask by themselves.
import { script, site } from "./site.js";

/** Milliseconds between two questions of a page that is not told. */
const POLLING = 10_000;
/** A page asks at most once in this time, and begins at random in it: 200 pages must not ask at the same moment. */
const SPREAD = 1000;
/** After so long a question is taken for one that is never answered. */
const HANGING = 60_000;
const NAMES = ["state", "event", "reset", "jobs", "resources", "gantt", "queues", "accounting", "events", "reservations"];

const listeners = new Set();
let status = "connecting";

/** Whether what happens is told: "live", "connecting", "lost". */
export function liveStatus() {
  return status;
}

/** Let a function be called with every message; `{status}` tells of the stream itself. */
export function listen(take) {
  listeners.add(take);
}

function hear(message) {
  if (message.status) status = message.status;
  for (const take of listeners) take(message);
}

const address = new URL("v1/stream", site.root).href;

function byWorker() {
  const worker = new SharedWorker(script("stream-worker.js"), { name: "oar-stream" });
  worker.onerror = () => hear({ status: "lost" });
  worker.port.onmessage = ({ data }) => hear(data);
  worker.port.postMessage({ open: address });
  addEventListener("pagehide", () => worker.port.postMessage({ close: true }));
  addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
}

function byLock() {
  const channel = new BroadcastChannel("oar-stream");
  channel.onmessage = ({ data }) => hear(data);
  const share = (message) => (hear(message), channel.postMessage(message));
  navigator.locks.request("oar-stream", () => new Promise(() => {
    const source = new EventSource(address);
    source.onopen = () => share({ status: "live" });
    source.onerror = () => share({ status: "lost" });
    for (const name of NAMES) source.addEventListener(name, (event) => share({ name, data: JSON.parse(event.data) }));
  }));
}

/** Begin to listen. */
export function begin() {
  try {
    if ("SharedWorker" in globalThis) byWorker();
    else if (navigator.locks && "BroadcastChannel" in globalThis) byLock();
  } catch {
    hear({ status: "lost" });
  }
}

/**
 * Call `refresh`, which tells whether it could, at once, and when a message concerns a page: soon, never twice in a second, never while it is hidden;
 * also now and then while nothing is told.  One that takes long is not cut off by the next: that one comes when it has ended.
 */
export function refreshing(refresh, concerns) {
  let isDue = false, isAtWork = false, timer = 0, last = 0;
  const work = async () => {
    isDue = false;
    isAtWork = true;
    last = Date.now();
    let waiting = 0;
    const silence = new Promise((give) => (waiting = setTimeout(give, HANGING)));
    const isShown = await Promise.race([refresh(), silence]);
    clearTimeout(waiting);
    isAtWork = false;
    if (!isShown) setTimeout(plan, POLLING); // what it was told is not shown yet
    else if (isDue) plan();
  };
  const run = () => {
    timer = 0;
    if (!document.hidden) work(); // else it catches up when it is shown
  };
  const plan = () => {
    isDue = true;
    if (timer || isAtWork || document.hidden) return;
    const rest = Math.max(0, last + SPREAD - Date.now());
    timer = setTimeout(run, rest + Math.random() * (rest ? SPREAD / 2 : SPREAD / 5));
  };
  let wasLost = false;
  listen((message) => {
    if (message.status === "lost") wasLost = true;
    if (message.status === "live" && wasLost) (wasLost = false), plan();
    if (message.name === "reset" || (message.name && concerns(message))) plan();
  });
  addEventListener("online", plan);
  addEventListener("visibilitychange", () => !document.hidden && isDue && plan());
  setInterval(() => status !== "live" && !isAtWork && !document.hidden && Date.now() - last >= POLLING && plan(), POLLING / 4);
  work();
}
