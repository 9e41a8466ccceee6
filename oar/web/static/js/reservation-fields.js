// Fields of the forms of advance reservations.
import { h } from "./common/dom.js";
import { dateOf, fieldDate } from "./common/format.js";
import { copy } from "./common/parts.js";
import { t } from "./common/words.js";

/** Show a field for a text; `alter(changes)` is told of each change. */
export function textField(name, label, value, alter, more = {}) {
  return h("label", { key: name, class: more.kind }, h("span", {}, label),
    h("input", { name, autocomplete: "off", spellcheck: "false", initial: value, on: { input: (event) => alter({ [name]: event.target.value }) }, ...more.attributes }));
}

/** Show a field for a date in epoch seconds, in the zone that is chosen. */
export function dateField(name, label, value, alter) {
  const take = (event) => alter({ [name]: dateOf(event.target.value) || "" });
  return h("label", { key: name, class: "date" }, h("span", {}, label), h("input", { name, type: "datetime-local", initial: fieldDate(Number(value)), on: { change: take, input: take } }));
}

/** Show a box to tick. */
export function tick(name, label, isTicked, alter) {
  return h("label", { key: name, class: "tick" }, h("input", { type: "checkbox", checked: isTicked, on: { change: (event) => alter({ [name]: event.target.checked ? "yes" : "" }) } }), ` ${label}`);
}

/** Show the command that asks for the same; `key` tells several of them apart. */
export function commandLine(command, key = "") {
  return h("p", { class: "code", key: `command ${key}` }, h("span", { class: "faint" }, command.split(" ", 1)[0]), h("pre", { tabindex: "0", "aria-label": t("ar.same") }, command),
    h("button", { type: "button", class: "quiet", on: { click: (event) => copy(command, event.currentTarget) } }, t("copy")));
}
