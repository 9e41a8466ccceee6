// The command palette: a number opens that job, a word what it names.
import { draw, h } from "./dom.js";
import { learnNames } from "./names.js";
import { page, site } from "./site.js";
import { t } from "./words.js";

/** So many things of a kind are offered. */
const MOST = 6;
const PAGES = {
  dashboard: t("menu.dashboard"), nodes: t("menu.nodes"), jobs: t("menu.jobs"), gantt: t("menu.gantt"), submit: t("menu.submit"),
  usage: t("menu.usage"), reservations: t("menu.reservations"),
  queues: t("menu.queues"), events: t("menu.events"), help: t("menu.help"), ...(site.administers ? { admin: t("menu.admin"), rules: t("rules.title") } : {}),
};

/** The pages that show what older programs did, [name, parameters, what it was called]. */
const OLD = [["nodes", { view: "monika" }, `Monika: ${t("old_to.monika")}`], ["gantt", { view: "drawgantt" }, `DrawGantt: ${t("old_to.drawgantt")}`]];

let known = null;
let chosen = 0;
let offers = [];
const dialog = document.getElementById("palette");

/** Open the palette. */
export function openPalette() {
  if (dialog.open) return;
  chosen = 0;
  dialog.showModal();
  show("");
  dialog.querySelector("input").select();
  learn().then(() => dialog.open && show(dialog.querySelector("input").value));
}

async function learn() {
  known ??= await learnNames();
}

function found(words) {
  const has = (text) => text.toLowerCase().includes(words);
  const some = (list, make) => (list ?? []).filter(has).slice(0, MOST).map(make);
  const pages = Object.entries(PAGES).filter(([, label]) => has(label));
  return [
    ...(/^\d+$/.test(words) ? [{ kind: t("palette.job"), label: words, href: page("jobs", words) }] : []),
    ...pages.map(([name, label]) => ({ kind: t("palette.page"), label, href: page(name) })),
    ...(words ? OLD.filter(([, , label]) => has(label)).map(([name, parameters, label]) => ({ kind: t("palette.page"), label, href: page(name, null, parameters) })) : []),
    ...(site.user && has(t("palette.my_jobs")) ? [{ kind: t("palette.page"), label: t("palette.my_jobs"), href: page("jobs", null, { user: site.user }) }] : []),
    ...(words ? some(known?.users, (name) => ({ kind: t("palette.user"), label: name, href: page("jobs", null, { user: name }) })) : []),
    ...(words ? some(known?.nodes, (name) => ({ kind: t("palette.node"), label: name, href: page("nodes", name) })) : []),
    ...(words ? some(known?.queues, (name) => ({ kind: t("palette.queue"), label: name, href: page("jobs", null, { queue: name }) })) : []),
    ...(words ? [{ kind: t("palette.search"), label: words, href: page("jobs", null, { q: words, state: "all" }) }] : []),
  ];
}

function show(text) {
  offers = found(text.trim().toLowerCase());
  chosen = Math.max(0, Math.min(chosen, offers.length - 1));
  draw(
    dialog,
    h("input", {
      type: "search", id: "palette-words", role: "combobox", autocomplete: "off", spellcheck: "false",
      "aria-label": t("palette.label"), "aria-controls": "palette-list", "aria-expanded": "true",
      "aria-activedescendant": `offer-${chosen}`, placeholder: t("palette.placeholder"),
      on: { input: typed, keydown: pressed },
    }),
    h("ul", { id: "palette-list", role: "listbox", "aria-label": t("palette.label") }, offers.map(option)),
  );
}

function option(offer, place) {
  return h("li", {
    id: `offer-${place}`, role: "option", "aria-selected": String(place === chosen), key: `${offer.kind} ${offer.label}`,
    on: { click: () => go(offer) },
  }, h("span", { class: "kind" }, offer.kind), h("span", {}, offer.label));
}

function go(offer) {
  if (offer) location.assign(offer.href);
}

function typed(event) {
  chosen = 0;
  show(event.target.value);
}

function pressed(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    chosen = (chosen + step + offers.length) % Math.max(1, offers.length);
    show(event.target.value);
    document.getElementById(`offer-${chosen}`)?.scrollIntoView({ block: "nearest" });
  } else if (event.key === "Enter") {
    event.preventDefault();
    go(offers[chosen]);
  }
}
dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
