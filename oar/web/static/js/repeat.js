// How often an advance reservation repeats: chosen, and written as the rule of RFC 5545 that the service takes.
import { h } from "./common/dom.js";
import { t } from "./common/words.js";

/** Rules that can be chosen; any other is written by hand. */
const RULES = { daily: "FREQ=DAILY", workdays: "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", weekly: "FREQ=WEEKLY", biweekly: "FREQ=WEEKLY;INTERVAL=2", monthly: "FREQ=MONTHLY" };
const WORDS = { none: t("repeat.none"), daily: t("repeat.daily"), workdays: t("repeat.workdays"), weekly: t("repeat.weekly"), biweekly: t("repeat.biweekly"), monthly: t("repeat.monthly"), other: t("repeat.other") };
const USUAL_COUNT = 10, MOST = 9999;
let isByHand = false;

/** Return what is chosen for a rule, {kind, count}. */
function choiceOf(rule) {
  if (isByHand) return { kind: "other" };
  if (!rule) return { kind: "none" };
  const [, base, count] = /^(.*);COUNT=(\d+)$/.exec(rule) ?? [], found = Object.entries(RULES).find(([, text]) => text === base);
  return found ? { kind: found[0], count: Number(count) } : { kind: "other" };
}

/** Show the fields for a rule; `alter(changes)` is told of a new one. */
export function repeatFields(rule, alter) {
  const { kind, count } = choiceOf(rule);
  const choose = (event) => {
    const chosen = event.target.value;
    isByHand = chosen === "other";
    if (!isByHand) alter({ rule: RULES[chosen] ? `${RULES[chosen]};COUNT=${count ?? USUAL_COUNT}` : "" });
    else alter({ rule });
  };
  const times = (event) => Number(event.target.value) > 0 && alter({ rule: `${RULES[kind]};COUNT=${Math.min(MOST, Math.floor(event.target.value))}` });
  return [
    h("label", { key: "repeats" }, h("span", {}, t("ar.rule")), h("select", { name: "repeats", value: kind, on: { change: choose } }, Object.entries(WORDS).map(([value, word]) => h("option", { key: value, value }, word)))),
    RULES[kind] && h("label", { key: "times" }, h("span", {}, t("repeat.times")), h("input", { name: "times", type: "number", min: 1, max: MOST, initial: String(count), on: { input: times } })),
    kind === "other" && h("label", { key: "rule", class: "long" }, h("span", {}, t("repeat.rule")), h("input", { name: "rule", autocomplete: "off", spellcheck: "false", initial: rule, placeholder: "FREQ=WEEKLY;BYDAY=MO;COUNT=10", on: { input: (event) => alter({ rule: event.target.value }) } })),
  ];
}
