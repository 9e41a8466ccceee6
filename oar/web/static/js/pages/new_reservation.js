// Would an advance reservation be granted?  And the request for it.
import { change, parameters } from "../common/address.js";
import { get, post } from "../common/api.js";
import { h } from "../common/dom.js";
import { time } from "../common/format.js";
import { nodeLinks } from "../common/parts.js";
import { announce, run } from "../common/page.js";
import { page, site } from "../common/site.js";
import { t } from "../common/words.js";
import { Asking } from "../asking.js";
import { commandLine, dateField, textField, tick } from "../reservation-fields.js";
import { commandOf, reservationOf } from "../reservation-wishes.js";
import { repeatFields } from "../repeat.js";
import { strip, stripOf } from "../small-gantt.js";

const FIELDS = ["from", "to", "name", "nodes", "each", "hosts", "properties", "users", "account", "project", "window", "idle", "rule", "hard", "replace", "earliest"];
/** What is counted on a node: its cores, where resources have such a property. */
let unit = "resource_id";
let isSending = false, proposal = null, around = null;

function wishes() {
  const given = parameters();
  return { ...Object.fromEntries(FIELDS.map((name) => [name, given[name] ?? ""])), unit };
}

function alter(changes) {
  change(changes);
  proposal = null;
  asking.soon();
  actions.show();
}

async function tried(asked) {
  const answer = await post("reservation-trials", reservationOf(asked));
  announce(answer.granted ? t("ar.would") : `${t("ar.would_not")}: ${answer.reason}`);
  await near(answer);
  return answer;
}

/** Fetch what the nodes do on which the reservation, or the first of a series, would be. */
async function near({ items }) {
  around = null;
  const [first] = items ?? [], nodes = first?.granted_slots.map((slot) => slot.host) ?? [];
  if (!nodes.length) return;
  const { start_time: begin, end_time: end } = first, long = end - begin;
  const record = await stripOf(nodes, begin - long / 2, end + long / 2).catch(() => null); // the answer stands without it
  around = record && { record, would: { begin, end, nodes } };
}

/** Nothing is asked before there is a period. */
const asking = new Asking(() => (site.user && wishes().to ? wishes() : null), tried, () => actions.show());

async function send(event) {
  event.preventDefault();
  if (isSending) return;
  isSending = true;
  asking.trouble = "";
  actions.show();
  try {
    const { items } = await post("reservations", reservationOf(wishes()));
    location.assign(page("reservations", items[0].id));
  } catch (error) {
    asking.fail(error);
    proposal = error.record?.proposal ?? null;
    isSending = false;
    actions.show();
  }
}

function view() {
  const asked = wishes();
  const text = (name, label, more) => textField(name, label, asked[name], alter, more);
  const box = (name, label) => tick(name, label, Boolean(asked[name]), alter);
  return [
    h("h1", {}, t("ar.new")),
    !site.user && h("p", { class: "notice", key: "login" }, t("ar.login"), " ", h("a", { href: page("login") }, t("login.begin"))),
    h("form", { class: "card submit", key: "form", on: { submit: send } },
      h("div", { class: "filters" },
        dateField("from", t("job.from"), asked.from, alter), dateField("to", t("job.until"), asked.to, alter), text("name", t("filter.name")),
        text("nodes", t("submit.nodes"), { attributes: { type: "number", min: 1 } }), text("each", t("submit.each"), { attributes: { type: "number", min: 1 } }),
        text("hosts", t("ar.hosts"), { kind: "long", attributes: { placeholder: "node-1,node-2" } }),
        text("properties", t("submit.properties"), { kind: "long", attributes: { placeholder: "gpu = 'YES'" } }),
        text("users", t("ar.access"), { kind: "long", attributes: { placeholder: "alice, @students, %ml, !bob" } }),
        text("account", t("ar.account")), text("project", t("job.project")),
        text("window", t("ar.window"), { attributes: { placeholder: "2h" } }), text("idle", t("ar.idle"), { attributes: { placeholder: "30m" } }),
        repeatFields(asked.rule, alter),
        box("earliest", t("ar.earliest")), box("hard", t("ar.hard")), box("replace", t("ar.replace"))),
      commandLine(commandOf(reservationOf(asked))),
      h("p", { key: "send" }, h("button", { class: "main", disabled: !site.user || isSending }, isSending ? t("submit.asking") : t("ar.ask")))),
    asking.trouble && h("p", { class: "notice bad", role: "alert", key: "trouble" }, h("bdi", {}, asking.trouble), proposal && later(proposal)),
    h("section", { class: `card${asking.isOld || asking.isAsking ? " aged" : ""}`, key: "trial", id: "trial" }, h("h2", {}, t("ar.trial")), trial()),
  ];
}

/** Offer a later start; the reservation stays as long as it is. */
function later(start) {
  const { from, to } = wishes(), long = Number(to) - (Number(from) || start);
  return h("span", { key: "proposal" }, ` ${t("ar.earliest_start")} `, time(start), " ",
    h("button", { type: "button", class: "link", on: { click: () => alter({ from: start, to: start + long }) } }, t("submit.use")));
}

function trial() {
  const { answer } = asking;
  if (!site.user) return h("p", { class: "faint" }, t("ar.login"));
  if (!answer) return h("p", { class: "faint" }, asking.isAsking ? t("submit.asking") : asking.trouble ? "–" : t("ar.trial_hint"));
  if (!answer.granted) return h("p", {}, `${t("ar.would_not")}: `, h("bdi", {}, answer.reason), answer.proposal && later(answer.proposal));
  return [
    h("p", {}, h("b", {}, t("ar.would"))),
    h("ul", { class: "plain" }, answer.items.map((item) => h("li", { key: item.start_time },
      time(item.start_time), " → ", time(item.end_time), ` · ${t("job.resources", { n: item.resources.length })} `, nodeLinks(item.granted_slots.map((slot) => slot.host)),
      item.reasons.map((reason, place) => h("p", { key: place, class: "faint" }, h("bdi", {}, reason)))))),
    around && strip(around.record, around),
    answer.output && h("p", { class: "faint" }, h("bdi", {}, answer.output)),
  ];
}

async function load(signal) {
  const { properties } = await get("site", {}, signal);
  unit = "core" in properties ? "core" : "resource_id";
  if (!asking.answer && !asking.isAsking) asking.soon();
  return {};
}

const actions = run({ load, view });
