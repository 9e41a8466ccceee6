// A row of fields that choose what a list shows; they stand in the address.
import { h } from "./dom.js";
import { dateOf, fieldDate } from "./format.js";
import { t } from "./words.js";

/** Milliseconds after the last key at which a field counts as filled. */
const PAUSE = 400;
let timer = 0;

/** Show fields, {name, label, kind, options, isRare}, with their values; rare ones are folded away until one is filled. `select(changes)` is told of new values. */
export function filters(fields, values, select) {
  const isAny = fields.some((field) => values[field.name]);
  const label = (field) => h("label", { key: field.name, class: field.kind === "date" ? "date" : null }, h("span", {}, field.label), input(field, values[field.name] ?? "", select));
  const rare = fields.filter((field) => field.isRare), isOpen = rare.some((field) => values[field.name]);
  return h("form", { class: "filters", role: "search", key: "filters", on: { submit: (event) => event.preventDefault() } },
    fields.filter((field) => !field.isRare).map(label),
    rare.length > 0 && h("details", { key: "rare", class: "rare", ...(isOpen ? { open: true } : {}) }, h("summary", {}, t("filter.more")), h("div", { class: "filters" }, rare.map(label))),
    isAny && h("button", { type: "button", class: "quiet", key: "none", on: { click: () => select(Object.fromEntries(fields.map((field) => [field.name, ""]))) } }, t("filter.none")));
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
  return h("input", { name, type: "search", inputmode: field.kind === "number" ? "numeric" : null, autocomplete: "off", spellcheck: "false", initial: value, on: { input: later, change: later } });
}
