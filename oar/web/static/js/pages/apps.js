// Programs with web pages in jobs: starts one, and shows their owner how to open those that run.
import { get, post, requestKey } from "../common/api.js";
import { h } from "../common/dom.js";
import { notice, outcome } from "../common/outcome.js";
import { copy, jobLink, jobState, table } from "../common/parts.js";
import { run } from "../common/page.js";
import { page, site } from "../common/site.js";
import { t } from "../common/words.js";

/** Most jobs that are searched for programs. */
const MOST = 200;
const TYPE = "app=";

/** What is counted: cores, where resources have them. */
let unit = "resource_id";
let told = null, opening = null, isSending = false, key = requestKey();

const programOf = (job) => job.types.find((type) => type.startsWith(TYPE))?.slice(TYPE.length);

async function load(signal) {
  const [{ properties }, { items: programs }, { items }] = await Promise.all([
    get("site", {}, signal),
    get("apps", {}, signal),
    site.user ? get("jobs", { user: site.user, details: true, newest_first: true, limit: MOST }, signal) : { items: [] },
  ]);
  unit = "core" in properties ? "core" : "resource_id";
  return { programs, jobs: items.filter(programOf) };
}

async function start(event) {
  event.preventDefault();
  if (isSending) return;
  isSending = true;
  const { program, cores, walltime } = Object.fromEntries(new FormData(event.target));
  const body = { types: [`${TYPE}${program}`], resources: `${unit}=${cores},walltime=${walltime}` };
  told = await outcome(() => post("jobs", body, { "Idempotency-Key": key }));
  if (!told.isBad) key = requestKey();
  isSending = false;
  actions.refresh();
}

async function open(id) {
  opening = null;
  told = null;
  try {
    opening = await get(`jobs/${id}/app`);
  } catch (error) {
    told = await outcome(() => Promise.reject(error));
  }
  actions.show();
}

function form(programs) {
  return h("form", { class: "filters card", key: "form", on: { submit: start } },
    h("label", {}, h("span", {}, t("apps.program")), h("select", { name: "program" },
      programs.map(({ name, title }) => h("option", { key: name, value: name }, title)))),
    h("label", {}, h("span", {}, t("apps.cores")), h("input", { name: "cores", type: "number", min: 1, initial: "1", required: true })),
    h("label", {}, h("span", {}, t("apps.walltime")), h("input", { name: "walltime", initial: "2:00", required: true, autocomplete: "off" })),
    h("button", { disabled: isSending }, t("apps.start")));
}

/** A text that is typed or opened elsewhere. */
function line(label, text) {
  return h("div", { class: "code", key: label }, h("span", { class: "faint" }, label), h("pre", { tabindex: "0", "aria-label": label }, text),
    h("button", { type: "button", class: "quiet", on: { click: (event) => copy(text, event.currentTarget) } }, t("copy")));
}

function opened({ job_id: job, ready, command, url, password }) {
  if (!ready) return h("p", { class: "notice", role: "status", key: "opening" }, t("apps.waits", { job }));
  return h("div", { class: "notice", role: "status", key: "opening" },
    line(t("apps.type"), command), command.endsWith("@LOGIN_HOST") && h("p", {}, t("apps.login_host")), line(t("apps.browse"), url), password && line(t("apps.password"), password), h("p", {}, t("apps.secret")));
}

const columns = [
  { key: "job", label: t("apps.job"), kind: "number", cell: jobLink },
  { key: "program", label: t("apps.program"), cell: (job) => h("bdi", {}, programOf(job)) },
  { key: "state", label: t("apps.state"), cell: jobState },
  { key: "open", label: t("apps.open"), cell: ({ id }) => h("button", { type: "button", on: { click: () => open(id) }, "aria-label": `${t("apps.open")} ${id}` }, t("apps.open")) },
];

const actions = run({
  load,
  view: ({ programs, jobs }) => [
    h("h1", {}, t("apps.title")), h("p", { class: "lead" }, t("apps.lead")),
    !programs.length && h("p", { key: "no-programs" }, t("apps.no_programs")),
    programs.length > 0 && (site.user ? form(programs) : h("p", { key: "login" }, h("a", { href: page("login") }, t("apps.login")))),
    notice(told), opening && opened(opening),
    site.user && [h("h2", { key: "mine" }, t("apps.mine")), table(t("apps.mine"), columns, jobs, (job) => job.id, t("apps.none"))],
  ],
  concerns: (message) => ["state", "jobs"].includes(message.name),
});
