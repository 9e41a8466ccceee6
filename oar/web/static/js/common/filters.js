// A row of fields that choose what a list shows; they stand in the address.
import { h } from "./dom.js";
import { dateOf, fieldDate, shortDate } from "./format.js";
import { suggestions } from "./names.js";
import { t } from "./words.js";

/** Milliseconds after the last key at which a field counts as filled. */
const PAUSE = 400;
/** Where the fields would push the list off the screen. */
const SMALL = matchMedia("(max-width: 640px)");
let timer = 0;

/**
 * Show fields, {name, label, kind, options, isRare, of, isView}, with their values, and those that are filled as chips; rare ones are folded away until one is
 * filled, all of them on a small screen. `of`: names of what is suggested; `isView`: it chooses no rows. `select(changes)` is told of new values.
 */
export function filters(fields, values, select) {
  const label = (field) => h("label", { key: field.name, class: field.kind === "date" ? "date" : null }, h("span", {}, field.label), input(field, values[field.name] ?? "", select));
  const rare = fields.filter((field) => field.isRare), isOpen = rare.some((field) => values[field.name]);
  const form = h("form", { class: "filters", role: "search", key: "filters", on: { submit: (event) => event.preventDefault() } },
    fields.filter((field) => !field.isRare).map(label),
    rare.length > 0 && h("details", { key: "rare", class: "rare", ...(isOpen ? { open: true } : {}) }, h("summary", {}, t("filter.more")), h("div", { class: "filters" }, rare.map(label))));
  const folded = SMALL.matches ? h("details", { key: "folded", class: "folded" }, h("summary", {}, t("filter.filters")), form) : form;
  return [folded, chips(fields, values, select)];
}

/** Show what is filtered by; a click on a chip takes its filter away. */
function chips(fields, values, select) {
  const filled = fields.filter((field) => values[field.name] && !field.isView);
  if (!filled.length) return null;
  const text = (field) => field.kind === "date" ? shortDate(Number(values[field.name])) : field.options?.find(([key]) => key === values[field.name])?.[1] ?? values[field.name];
  return h("div", { class: "row chips", key: "chips" },
    filled.map((field) => h("button", { type: "button", key: field.name, class: "chip", "aria-pressed": "true", title: t("filter.remove"), on: { click: () => select({ [field.name]: "" }) } },
      h("span", { class: "faint" }, field.label), " ", h("bdi", {}, text(field)), h("span", { "aria-hidden": "true" }, " ✕"))),
    h("button", { type: "button", class: "quiet", key: "none", on: { click: () => select(Object.fromEntries(fields.map((field) => [field.name, ""]))) } }, t("filter.none")));
}

function input(field, value, select) {
  const name = `filter-${field.name}`;
  if (field.options) {
    const options = field.options.map(([key, label]) => h("option", { key, value: key, selected: key === value }, label));
    return h("select", { name, value, on: { change: (event) => select({ [field.name]: event.target.value }) } }, options);
  }
  if (field.kind === "date") {
    const take = (event) => select({ [field.name]: dateOf(event.target.value) || "" });
    return h("input", { name, type: "datetime-local", initial: fieldDate(Number(value)), on: { change: take } });
  }
  const later = (event) => {
    const text = event.target.value.trim();
    clearTimeout(timer);
    timer = setTimeout(() => select({ [field.name]: text }), event.type === "change" ? 0 : PAUSE);
  };
  const suggested = field.of ? suggestions(field.of) : {};
  return [h("input", { name, type: "search", inputmode: field.kind === "number" ? "numeric" : null, autocomplete: "off", spellcheck: "false", initial: value, ...suggested.attributes, on: { input: later, change: later, ...suggested.on } }), suggested.list];
}
