// The tokens of who asks: what programs show to be him.
import { get, post, remove } from "../common/api.js";
import { h } from "../common/dom.js";
import { time } from "../common/format.js";
import { refusal } from "../common/outcome.js";
import { copy, table } from "../common/parts.js";
import { run } from "../common/page.js";
import { t } from "../common/words.js";

let made = null;
let trouble = "";

const columns = [
  { key: "id", label: t("node.id"), kind: "number", cell: (token) => token.id },
  { key: "scope", label: t("tokens.scope"), cell: (token) => token.scope },
  { key: "comment", label: t("tokens.comment"), kind: "text", cell: (token) => h("bdi", {}, token.comment) },
  { key: "created", label: t("tokens.created"), cell: (token) => time(token.created) },
  { key: "expires", label: t("tokens.expires"), cell: (token) => time(token.expires) },
  { key: "used", label: t("tokens.used"), cell: (token) => time(token.last_used) },
  { key: "revoke", label: t("tokens.revoke"), cell: (token) => h("button", { type: "button", class: "danger", on: { click: () => attempt(() => remove(`tokens/${token.id}`)) } }, t("tokens.revoke")) },
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
      [["ro", t("tokens.ro")], ["rw", t("tokens.rw")], ["submit", t("tokens.submit")]].map(([value, label]) => h("option", { key: value, value }, label)))),
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
    made && secret(), form(), table(t("tokens.title"), columns, items, (token) => token.id, t("tokens.none")),
  ],
});
