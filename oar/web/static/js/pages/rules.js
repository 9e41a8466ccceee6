// The admission rules, as they judge jobs one after the other (administrators).
import { Acts } from "../acts.js";
import { get, patch } from "../common/api.js";
import { h } from "../common/dom.js";
import { run } from "../common/page.js";
import { t } from "../common/words.js";

const acts = new Acts(() => actions.show(), () => actions.refresh());

function view({ items }) {
  return [h("h1", {}, t("rules.title")), h("p", { class: "lead", key: "lead" }, t("rules.lead"), " ", h("code", {}, "oaradmissionrules")), items.map(rule), !items.length && h("p", { class: "empty" }, t("rules.none"))];
}

function rule({ id, priority, enabled, text }) {
  const change = (key, label, isEnabled, question) => ({ key, label, question, run: () => patch(`admission-rules/${id}`, { enabled: isEnabled }) });
  return h("section", { class: "card", key: id },
    h("h2", {}, t("rules.rule", { id }), " ", h("span", { class: "state" }, enabled ? t("rules.on") : t("rules.off")), ` ${t("queue.priority")} ${priority}`),
    h("pre", { class: "output", tabindex: "0", "aria-label": t("rules.rule", { id }) }, text),
    acts.view([enabled ? change("off", t("rules.disable"), false, t("rules.disable_question", { id })) : change("on", t("rules.enable"), true)], String(id)));
}

const actions = run({ load: (signal) => get("admission-rules", {}, signal), view });
