// When would a job start?  What if it asked for less?  And its submission.
import { change, parameters } from "../common/address.js";
import { get, post, requestKey } from "../common/api.js";
import { h } from "../common/dom.js";
import { fullDate, time } from "../common/format.js";
import { copy, nodeLinks, quoted, switched } from "../common/parts.js";
import { announce, run } from "../common/page.js";
import { now, page, site } from "../common/site.js";
import { t } from "../common/words.js";
import { Asking } from "../asking.js";
import { jobOf, optionsOf, others } from "../job-wishes.js";
import { strip, stripOf } from "../small-gantt.js";
import { ScriptField } from "../script-field.js";
import { Former, templateChoice } from "../former-jobs.js";

/** Seconds from now that still are "now". */
const SOON = 60;
const DAY = 86_400;
/** Nodes on which the diagram shows where the job would be. */
const MOST_HOSTS = 100;
const FIELDS = ["command", "name", "queue", "project", "nodes", "unit", "each", "walltime", "properties", "types", "gpus", "directory", "array", "limit", "after", "mail"];

let isSending = false, key = requestKey(), around = null;
/** What may be counted on a node. */
const UNITS = ["core", "resource_id"];
/** What is counted unless the address tells it, as it does for a job that counted the other: cores, where resources have them. */
let usualUnit = "resource_id";

function wishes() {
  const given = parameters();
  const unit = UNITS.includes(given.unit) ? given.unit : usualUnit;
  return { ...Object.fromEntries(FIELDS.map((name) => [name, given[name] ?? ""])), unit };
}

function alter(changes) {
  change(changes);
  key = requestKey();
  asking.soon();
  actions.show();
}

/** Ask when the job and its alternatives would start. */
async function estimate(asked) {
  const list = [{ label: t("submit.as_asked"), changes: {} }, ...others(asked)];
  const { items } = await post("estimates", { alternatives: list.map(({ changes }) => jobOf({ ...asked, ...changes }, script.script)) });
  const answers = items.map((item, place) => ({ ...item, ...list[place] }));
  announce(`${t("submit.as_asked")}: ${startText(answers[0])}`);
  await near(answers[0]);
  return answers;
}

/** Fetch what the nodes do on which the job would be, as it is asked for: {record, would}; null if it has no place. */
async function near(answer) {
  around = null;
  if (!answer.start || !answer.hosts?.length) return;
  const { from, to } = place(answer), would = { begin: answer.start, end: answer.start + (answer.walltime || DAY), nodes: answer.hosts };
  const record = await stripOf(answer.hosts, from, to).catch(() => null); // the answer stands without it
  around = record && { record, would };
}

const script = new ScriptField(() => {
  key = requestKey();
  asking.soon();
  actions.show();
});
const former = new Former();
const asking = new Asking(() => (site.user ? wishes() : null), estimate, () => actions.show());

async function submit(event) {
  event.preventDefault();
  if (isSending) return;
  isSending = true;
  actions.show();
  try {
    const answer = await post("jobs", jobOf(wishes(), script.script), { "Idempotency-Key": key });
    location.assign(page("jobs", answer.id));
  } catch (error) {
    asking.fail(error);
    isSending = false;
    actions.show();
  }
}

// -- what is shown -------------------------------------------------------------------------------------------------

function field(name, label, more = {}) {
  return h("label", { key: name, class: more.kind }, h("span", {}, label),
    h("input", { name, autocomplete: "off", spellcheck: "false", initial: wishes()[name], on: { input: (event) => alter({ [name]: event.target.value.trim() }) }, ...more.attributes }));
}

function choice(name, label, options) {
  return h("label", { key: name }, h("span", {}, label),
    h("select", { name, value: wishes()[name], on: { change: (event) => alter({ [name]: event.target.value }) } }, options.map(([value, word]) => h("option", { key: value, value }, word))));
}

function view({ queues, templates, projects, hasGpus }) {
  const asked = wishes(), what = script.isOpen ? ["-S", `./${script.name}`] : asked.command ? [asked.command] : [];
  const command = ["oarsub", ...optionsOf(asked), ...what].map(quoted).join(" ");
  return [
    h("h1", {}, t("submit.title")),
    !site.user && h("p", { class: "notice", key: "login" }, t("submit.login"), " ", h("a", { href: page("login") }, t("login.begin"))),
    h("form", { class: "card submit", key: "form", on: { submit } },
      templateChoice(templates, FIELDS, alter),
      former.choice(alter),
      switched(t("submit.what"), [["command", t("job.command")], ["script", t("script.script")]], script.isOpen ? "script" : "command", (kind) => script.open(kind === "script")),
      script.isOpen && script.view(),
      usualFields(queues, projects, hasGpus, asked),
      rareFields(asked),
      h("p", { class: "code", key: "command" }, h("span", { class: "faint" }, "oarsub"), h("pre", { tabindex: "0", "aria-label": t("submit.same") }, command),
        h("button", { type: "button", class: "quiet", on: { click: (event) => copy(command, event.currentTarget) } }, t("copy"))),
      h("p", { key: "send" }, h("button", { class: "main", disabled: !site.user || isSending || Boolean(script.isOpen && (script.trouble || !script.text.trim())) }, t("submit.send")))),
    asking.trouble && h("p", { class: "notice bad", role: "alert", key: "trouble" }, h("bdi", {}, asking.trouble)),
    h("section", { class: `card${asking.isOld || asking.isAsking ? " aged" : ""}`, key: "when", id: "when" }, h("h2", {}, t("submit.when")), estimates(), former.advice(asked, alter)),
  ];
}

function usualFields(queues, projects, hasGpus, asked) {
  const isBesteffort = asked.types.split(/[ ,]+/).includes("besteffort");
  const toggle = (event) => alter({ types: [...asked.types.split(/[ ,]+/).filter((type) => type && type !== "besteffort"), ...(event.target.checked ? ["besteffort"] : [])].join(" ") });
  const count = (name, label) => field(name, label, { attributes: { type: "number", min: 1 } });
  const among = (names, chosen) => [["", t("submit.usual")], ...[...new Set([...names, ...(chosen ? [chosen] : [])])].map((name) => [name, name])];
  return h("div", { class: "filters", key: "usual" },
    !script.isOpen && field("command", t("job.command"), { kind: "long", attributes: { required: true, placeholder: "./run.sh" } }), field("name", t("filter.name")),
    count("nodes", t("submit.nodes")), hasGpus && count("gpus", t("submit.gpus")), count("each", asked.gpus ? t("submit.each_gpu") : t("submit.each")),
    field("walltime", t("job.walltime"), { attributes: { placeholder: "4:00", pattern: "\\d+(:\\d{1,2}){0,2}" } }),
    choice("queue", t("filter.queue"), among(queues, asked.queue)),
    projects.length > 0 ? choice("project", t("filter.project"), among(projects, asked.project)) : field("project", t("filter.project")),
    field("properties", t("submit.properties"), { kind: "long", attributes: { placeholder: "gpu = 'YES'" } }), field("types", t("job.types")),
    h("label", { key: "besteffort", class: "tick" }, h("input", { type: "checkbox", checked: isBesteffort, on: { change: toggle } }), " besteffort"));
}

/** Fields that few jobs need; they are open if one is filled. */
const RARE = ["directory", "array", "limit", "after", "mail"];

function rareFields(asked) {
  const isOpen = RARE.some((name) => asked[name]);
  return h("details", { key: "rare", class: "rare", ...(isOpen ? { open: true } : {}) }, h("summary", {}, t("submit.more")), h("div", { class: "filters" },
    field("array", t("submit.array"), { attributes: { type: "number", min: 1, max: 100_000 } }), asked.array && field("limit", t("array.limit"), { attributes: { type: "number", min: 1 } }),
    field("after", t("submit.after"), { attributes: { placeholder: "118 120" } }),
    field("mail", t("submit.mail"), { attributes: { type: "email", placeholder: "alice@example.org" } }),
    field("directory", t("job.directory"), { kind: "long", attributes: { placeholder: `/home/${site.user || "alice"}` } })));
}

function estimates() {
  if (!site.user) return h("p", { class: "faint" }, t("submit.login"));
  if (!asking.answer) return h("p", { class: "faint" }, asking.isAsking ? t("submit.asking") : asking.trouble ? "–" : t("submit.hint"));
  return [alternatives(), around && strip(around.record, around)];
}

/** Whether the job and all alternatives would start at once. */
function areAllNow() {
  return asking.answer.length > 1 && asking.answer.every((answer) => !answer.problem && answer.start && answer.start <= now() + SOON);
}

function alternatives() {
  if (!areAllNow()) return list();
  return [h("p", { key: "now" }, h("b", {}, t("submit.all_now")), where(asking.answer[0])), h("details", { key: "each" }, h("summary", {}, t("submit.alternatives")), list())];
}

/** Show the nodes of an answer, and lead to its place in the diagram. */
function where(answer) {
  if (!answer.hosts?.length) return null;
  const inDiagram = answer.start && [" · ", h("a", { href: page("gantt", null, place(answer)) }, t("ar.in_gantt"))];
  return [" ", t("why.on"), " ", nodeLinks(answer.hosts), inDiagram];
}

function list() {
  return h("ul", { class: "plain", key: "alternatives" }, asking.answer.map((answer) => h("li", { key: answer.label },
    h("b", {}, answer.label), t("colon"), start(answer), where(answer),
    answer.sentence && !answer.feasible && h("span", { class: "faint" }, ` ${answer.sentence}`),
    Object.keys(answer.changes).length > 0 && !answer.problem && [" · ", h("button", { type: "button", class: "link", "aria-label": `${t("submit.use")}: ${answer.label}`, on: { click: () => alter(answer.changes) } }, t("submit.use"))],
    answer.warnings?.map((warning, place) => h("p", { key: place, class: "faint" }, warning)))));
}

/** Return what the diagram is asked, to show where the job would be. */
function place({ start: begin, walltime, hosts }) {
  const from = Math.min(begin, now()), length = walltime || DAY;
  return { from: Math.floor(from - length), to: Math.ceil(begin + 2 * length), would: `${begin},${length}`, on: hosts.slice(0, MOST_HOSTS).join() };
}

function start(answer) {
  return answer.start > now() + SOON ? [t("submit.starts"), " ", time(answer.start)] : startText(answer);
}

function startText(answer) {
  if (answer.problem) return answer.problem.detail;
  if (answer.start) return answer.start > now() + SOON ? `${t("submit.starts")} ${fullDate(answer.start)}` : t("submit.now");
  return answer.not_before ? t("submit.later") : t("submit.unknown");
}

async function load(signal) {
  const { queues, properties, templates } = await get("site", {}, signal);
  usualUnit = "core" in properties ? "core" : "resource_id";
  const limits = site.user ? await get("limits", { user: site.user }, signal).catch(() => null) : null;
  if (site.user) await former.load(signal);
  if (!asking.answer && !asking.isAsking && FIELDS.some((name) => parameters()[name])) asking.soon();
  return { queues, templates, projects: limits?.projects ?? [], hasGpus: "gpu" in properties };
}

const actions = run({ load, view, concerns: ({ name }) => name === "queues" });
