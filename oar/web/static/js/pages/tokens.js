// The tokens of who asks: what programs show to be him.
import { Acts } from "../acts.js";
import { get, post, remove } from "../common/api.js";
import { h } from "../common/dom.js";
import { time } from "../common/format.js";
import { refusal } from "../common/outcome.js";
import { copy, table } from "../common/parts.js";
import { run } from "../common/page.js";
import { site } from "../common/site.js";
import { t } from "../common/words.js";

let made = null;
let trouble = "";

const SCOPES = { ro: t("tokens.ro"), rw: t("tokens.rw"), submit: t("tokens.submit"), admin: t("tokens.admin"), session: t("tokens.session") };
const OFFERED = ["ro", "rw", "submit"];
const acts = new Acts(() => actions.show(), () => actions.refresh());

const columns = [
  { key: "id", label: t("node.id"), kind: "number", cell: (token) => token.id },
  { key: "scope", label: t("tokens.scope"), cell: (token) => token.scope.split(",").map((scope) => SCOPES[scope] ?? scope).join(", ") },
  { key: "comment", label: t("tokens.comment"), kind: "text", cell: (token) => h("bdi", {}, token.comment) },
  { key: "created", label: t("tokens.created"), cell: (token) => time(token.created) },
  { key: "expires", label: t("tokens.expires"), cell: (token) => time(token.expires) },
  { key: "used", label: t("tokens.used"), cell: (token) => time(token.last_used) },
  { key: "revoke", label: t("tokens.revoke"), cell: ({ id }) => acts.view([{ key: "revoke", label: t("tokens.revoke"), question: t("tokens.revoke_question"), run: () => remove(`tokens/${id}`) }], String(id)) },
];

async function attempt(act) {
  trouble = "";
  try {
    await act();
  } catch (error) {
    trouble = refusal(error);
  }
  actions.refresh();
}

function create(event) {
  event.preventDefault();
  const { scope, days, comment } = Object.fromEntries(new FormData(event.target));
  attempt(async () => (made = await post("tokens", { scope, days: Number(days), comment })));
}

function form() {
  return h("form", { class: "filters card", key: "form", on: { submit: create } },
    h("label", {}, h("span", {}, t("tokens.scope")), h("select", { name: "scope" },
      OFFERED.map((value) => h("option", { key: value, value }, SCOPES[value])))),
    h("label", {}, h("span", {}, t("tokens.days")), h("input", { name: "days", type: "number", min: 1, max: 365, initial: "90", required: true })),
    h("label", {}, h("span", {}, t("tokens.comment")), h("input", { name: "comment", maxlength: 100, autocomplete: "off" })),
    h("button", {}, t("tokens.create")));
}

function secret() {
  return h("div", { class: "notice", key: "made", role: "status" }, h("p", {}, t("tokens.once")),
    h("div", { class: "code" }, h("span", { class: "faint" }, t("login.token")), h("pre", { tabindex: "0", "aria-label": t("login.token") }, made.token),
      h("button", { type: "button", class: "quiet", on: { click: (event) => copy(made.token, event.currentTarget) } }, t("copy"))));
}

const actions = run({
  load: (signal) => get("tokens", {}, signal),
  view: ({ items }) => [
    h("h1", {}, t("tokens.title")), h("p", { class: "lead" }, t("tokens.lead")),
    trouble && h("p", { class: "notice bad", role: "alert", key: "trouble" }, trouble),
    made && secret(), site.createsTokens ? form() : h("p", { class: "faint", key: "form" }, t("tokens.no_creation")), table(t("tokens.title"), columns, items, (token) => token.id, t("tokens.none")),
  ],
});
