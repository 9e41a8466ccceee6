// What every page does: it loads its records, shows them, and does so again when something has changed.
import { remove } from "./api.js";
import { begin, listen, liveStatus, refreshing } from "./live.js";
import { draw, h } from "./dom.js";
import { fullDate } from "./format.js";
import { refusal } from "./outcome.js";
import { now } from "./site.js";
import { openPalette } from "./palette.js";
import { setUpMenu } from "./menu.js";
import { t } from "./words.js";

/** Seconds after which what is shown counts as old while nothing is told. */
const OLD = 30;
/** Milliseconds between two announcements to who listens to the page. */
const ANNOUNCING = 5000;

const main = document.getElementById("main");
let shownAt = now();
let lastSaid = 0;

/** Say something to who listens to the page instead of looking at it; the last of several in a short time counts. */
export function announce(text) {
  const place = document.getElementById("said");
  const wait = Math.max(0, lastSaid + ANNOUNCING - Date.now());
  clearTimeout(announce.timer);
  announce.timer = setTimeout(() => {
    lastSaid = Date.now();
    place.textContent = text;
  }, wait);
}

function showStatus() {
  const place = document.getElementById("live");
  const isLive = liveStatus() === "live", isOld = !isLive && now() - shownAt > OLD;
  const text = isLive ? t("live.live") : t("live.as_of", { time: fullDate(shownAt).slice(11) });
  place.dataset.status = isLive ? "live" : isOld ? "old" : "waiting";
  draw(place, h("span", { class: "dot", "aria-hidden": "true" }), h("span", {}, text));
  document.body.classList.toggle("old", isOld);
}

/**
 * Run a page.  `load(signal)` returns its records, `view(records)` what is shown of them, `concerns(message)` tells
 * whether a message makes it load again.  Returns functions that load, and draw, again.
 */
export function run({ load, view, concerns = () => false, shown = () => {} }) {
  let records = null, trouble = null, asking = null;
  const show = () => {
    if (records !== null) draw(main, trouble && notice(trouble), view(records));
    else if (trouble) draw(main, notice(trouble));
    shown();
    showStatus();
  };
  const refresh = async () => {
    asking?.abort();
    const mine = (asking = new AbortController());
    document.body.classList.add("loading");
    try {
      const loaded = await load(mine.signal);
      if (mine.signal.aborted) return true;
      records = loaded;
      trouble = null;
      shownAt = now();
    } catch (error) {
      if (error.name === "AbortError") return true;
      trouble = refusal(error);
    }
    document.body.classList.remove("loading");
    show();
    document.documentElement.dataset.ready = "yes";
    return trouble === null;
  };
  setUp();
  refreshing(refresh, concerns);
  return { refresh, show };
}

/** Set up what every page has: its choices, its search, the stream. */
export function setUp() {
  setUpMenu();
  setUpLanguages();
  listen((message) => message.status && showStatus());
  setInterval(showStatus, 5000);
  begin();
  document.getElementById("logout")?.addEventListener("click", async () => {
    await remove("session");
    location.reload();
  });
}

/** Let the links to other languages lead to what is shown now; a language that was chosen is kept, and no part of an address. */
function setUpLanguages() {
  const address = (lang) => {
    const url = new URL(location.href);
    if (lang) url.searchParams.set("lang", lang);
    else url.searchParams.delete("lang");
    return url.href;
  };
  for (const link of document.querySelectorAll("footer [hreflang]")) link.addEventListener("click", () => (link.href = address(link.hreflang)));
  if (new URLSearchParams(location.search).has("lang")) history.replaceState(null, "", address(null));
}

function notice(text) {
  return h("p", { class: "notice bad", role: "alert", key: "notice" }, text);
}

addEventListener("keydown", (event) => {
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if ((event.key === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !isTyping)) {
    event.preventDefault();
    openPalette();
  }
});
document.getElementById("search").addEventListener("click", () => openPalette());
document.querySelector("nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" }); // the menu is one line on small screens
