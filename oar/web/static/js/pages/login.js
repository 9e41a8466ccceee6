// Who are you?  A name with a password, or a token.
import { post } from "../common/api.js";
import { draw, h } from "../common/dom.js";
import { refusal } from "../common/outcome.js";
import { page, site } from "../common/site.js";
import { setUp } from "../common/page.js";
import { t } from "../common/words.js";

const place = document.getElementById("login");
const takesPasswords = place.dataset.passwords === "yes";
let trouble = "";

function field(name, label, type, complete) {
  return h("label", { key: name }, h("span", {}, label),
    h("input", { name, type, autocomplete: complete, required: true, spellcheck: "false" }));
}

function form(key, label, fields, shown) {
  const submit = async (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(event.target));
    try {
      await post("session", shown(values));
      location.assign(back());
    } catch (error) {
      trouble = refusal(error);
      show();
    }
  };
  return h("form", { class: "card login", key, on: { submit } }, fields, h("button", {}, label));
}

/** Return the page from which somebody came; another site is none. */
function back() {
  return document.referrer.startsWith(`${site.root}ui/`) && !document.referrer.includes("/ui/login") ? document.referrer : page("dashboard");
}

function show() {
  draw(place,
    trouble && h("p", { class: "notice bad", role: "alert", key: "trouble" }, trouble),
    takesPasswords && form("password", t("login.by_password"),
      [field("user", t("job.user"), "text", "username"), field("password", t("login.password"), "password", "current-password")],
      ({ user, password }) => ({ user, password })),
    form("token", t("login.by_token"), [field("token", t("login.token"), "password", "off")], ({ token }) => ({ token: token.trim() })),
    h("p", { class: "faint", key: "hint" }, t("login.hint"), " ", h("code", {}, "oar-token create")));
}

show();
setUp();
document.documentElement.dataset.ready = "yes";
