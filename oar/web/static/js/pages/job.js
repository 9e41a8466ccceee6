// What a job is, when it starts, how it runs, why it ended.
import { get } from "../common/api.js";
import { h } from "../common/dom.js";
import { bytes, duration, naturally, number, time } from "../common/format.js";
import { now, page, site } from "../common/site.js";
import { copy, english, eventGroups, eventSentence, exitOf, jobLink, jobState, nodeLink, nodeLinks, reservationLink, shareBar, stateChip, STATE_WORDS, table } from "../common/parts.js";
import { jobActs, keepFocus } from "../common/job-acts.js";
import { requestOf } from "../common/asked.js";
import { announce, run } from "../common/page.js";
import { t } from "../common/words.js";
import { WAITED } from "../common/waited.js";
import { JobAlteration, WalltimeForm } from "../job-changes.js";
import { JobCurves } from "../job-curves.js";
import { JobOutput } from "../job-output.js";
import { JobPlace } from "../job-place.js";
import { fieldsOf } from "../job-wishes.js";
import { SmallestChange } from "../smallest-change.js";

const HOUR = 3600;
const id = Number(location.pathname.split("/").pop());
let saidState = null;

const walltime = new WalltimeForm(() => actions.show(), () => actions.refresh());
const curves = new JobCurves(() => actions.show());
const alteration = new JobAlteration(() => actions.show(), () => actions.refresh());

async function load(signal) {
  walltime.renew(id);
  const job = await get(`jobs/${id}`, { everything: true, include: "predictions,usage" }, signal);
  curves.renew(id, job);
  return job;
}

function view(job) {
  if (saidState && saidState !== job.state) announce(t("job.is_now", { id, state: STATE_WORDS[job.state] }));
  saidState = job.state;
  document.title = `${job.id} ${job.name ?? ""} ${STATE_WORDS[job.state]} · ${site.name}`;
  return [
    h("h1", {}, h("b", {}, job.id), job.name && h("bdi", {}, ` ${job.name}`), " ", jobState(job)),
    h("p", { class: "lead" }, h("a", { href: page("jobs", null, { user: job.user }) }, h("bdi", {}, job.user)), " · ",
      h("a", { href: page("jobs", null, { queue: job.queue }) }, job.queue),
      job.project && [" · ", h("bdi", {}, t("job.of_project", { project: job.project }))],
      job.array !== job.id || job.array_index > 1 ? [" · ", h("a", { href: page("arrays", job.array) }, t("job.of_array", { array: job.array, index: job.array_index }))] : null,
      inDiagram(job)),
    jobActs(job, () => actions.show(), () => actions.refresh()), waiting(job), running(job), ended(job), walltime.view(job), alteration.view(job), used(job.usage), curves.view(job), place.view(job), written(job), facts(job), timeline(job), request(job), resources(job), events(job),
  ];
}

/** Lead to where the job is in the diagram, with as much of the time around it. */
function inDiagram(job) {
  const begin = job.started ?? job.planned;
  if (!begin) return null;
  const end = job.ended ?? begin + (job.walltime || HOUR), margin = Math.max(HOUR, end - begin);
  return [" · ", h("a", { href: page("gantt", null, { job: id, from: Math.floor(begin - margin), to: Math.ceil(end + margin) }) }, t("ar.in_gantt"))];
}

function waiting(job) {
  const why = job.explanation;
  if (job.ended || job.started || !why.sentence) return null;
  return h("section", { class: "card why", key: "why" }, h("h2", {}, t("why.title")),
    h("p", { class: "sentence" }, site.language !== "en" && WAITED[why.code] && [h("span", { class: "first" }, WAITED[why.code]), ". "], english(why.sentence)),
    why.start && h("p", {}, t("why.start"), " ", time(why.start.date), why.start.hosts.length > 0 && [" ", t("why.on"), " ", nodeLinks(why.start.hosts)], ", ",
      firmness(why.start.firmness), why.start.because && h("span", { class: "faint" }, " (", english(why.start.because), ")"), ". ",
      why.start.jobs_before > 0 && t("why.before", { n: why.start.jobs_before }),
      why.start.half_off_by != null && [" ", t("why.measured", { half: duration(why.start.half_off_by), most: duration(why.start.most_off_by) })]),
    why.data.advance_reservations?.length > 0 && h("p", { key: "reservations" }, t("word.reservation"), t("colon"), why.data.advance_reservations.map((id, place) => [place ? ", " : null, reservationLink({ id })])),
    why.in_front.length > 0 && h("div", {}, h("h3", {}, t("why.in_front")),
      h("ul", { class: "plain" }, why.in_front.map((other) => h("li", { key: other.job_id }, jobLink({ id: other.job_id }), " ", h("bdi", {}, other.owner), " ", stateChip(other.state), other.end ? [" ", t("why.until"), " ", time(other.end)] : null)))),
    why.trouble && h("p", { class: "bad" }, english(why.trouble)),
    why.advice && h("p", { class: "advice" }, english(why.advice)),
    change.view(), site.user === job.user && comparison(job),
    told(job.predictions), waited(why));
}

/** Lead to where a smaller and a shorter job are compared with this one, if the form there has all that it asks for. */
function comparison(job) {
  const wishes = fieldsOf(job);
  return wishes && h("p", { key: "comparison" }, h("a", { href: page("submit", null, wishes) }, t("change.compare")));
}

const change = new SmallestChange(id, () => actions.show());

const FIRMNESS = { fixed: t("firmness.fixed"), latest: t("firmness.latest"), tentative: t("firmness.tentative") };
function firmness(word) {
  return h("span", { class: `firm ${word}` }, FIRMNESS[word]);
}

function waited(why) {
  const parts = Object.entries(why.waited_for);
  if (!parts.length) return null;
  return h("p", { class: "faint" }, t("why.waited", { time: duration(why.waited) }), " ",
    parts.map(([reason, seconds], place) => [place ? ", " : "", `${WAITED[reason] ?? reason} ${duration(seconds)}`]));
}

/** Show which starts the job was told, and when. */
function told(predictions) {
  if (!predictions.length) return null;
  return h("p", { class: "faint", key: "told" }, t("why.told"), " ", predictions.map((each, place) => [place ? " → " : "", time(each.start), " (", t("why.told_at"), " ", time(each.date), ")"]));
}

const USAGE = [
  { key: "node", label: t("node.node"), cell: ([name]) => nodeLink(name) },
  { key: "cores", label: t("usage.cores"), kind: "number", cell: ([, each]) => number(each.cores) },
  { key: "cpu", label: t("usage.cpu"), kind: "number", cell: ([, each]) => (each.cpu_efficiency == null ? "–" : shareBar(each.cpu_efficiency, 1)) },
  { key: "memory", label: t("usage.memory"), kind: "number", cell: ([, each]) => bytes(each.max_rss) },
  { key: "limit", label: t("usage.memory_limit"), kind: "number", cell: ([, each]) => bytes(each.memory_limit) },
];

/** Show what the job used on each of its nodes, where that is known. */
function used({ nodes }) {
  const all = Object.entries(nodes);
  return all.length > 0 && h("section", { class: "card", key: "used" }, h("h2", {}, t("usage.of_nodes")), table(t("usage.of_nodes"), USAGE, all, ([name]) => name, "–"));
}

function running(job) {
  if (!job.started || job.ended || !job.walltime) return null;
  const spent = now() - job.started;
  return h("section", { class: "card", key: "running" },
    h("p", {}, t("job.of", { spent: duration(spent), whole: duration(job.walltime) }), " ", shareBar(spent, job.walltime), " ", t("job.until"), " ", time(job.started + job.walltime)),
    job.explanation.trouble && h("p", { class: "bad" }, english(job.explanation.trouble)),
    job.explanation.advice && h("p", { class: "advice" }, english(job.explanation.advice)));
}

function ended(job) {
  const end = job.end;
  if (!job.ended || !end) return null;
  return h("section", { class: "card", key: "end" }, h("h2", {}, t("end.title")),
    end.sentence && h("p", { class: "sentence" }, english(end.sentence)),
    end.advice && h("p", { class: "advice" }, english(showsOutput(job) ? output.linked(end.advice) : end.advice)),
    job.cpu_efficiency != null && h("p", {}, t("end.cpu"), " ", shareBar(job.cpu_efficiency, 1), " · ", t("end.memory", { memory: bytes(job.max_rss) })),
    job.resubmitted_as && h("p", {}, t("end.resubmitted"), " ", jobLink({ id: job.resubmitted_as })));
}

const place = new JobPlace(() => actions.show());
const output = new JobOutput(id, () => actions.show());
let looks = false;

/** Outcomes after which people look for the reason in the error output. */
const FAILED = ["failed", "timeout", "out-of-memory"];

/** Whether who looks may read what a job writes: its owner, nobody else. */
function showsOutput(job) {
  return job.started && site.user === job.user && job.kind !== "INTERACTIVE";
}

/** Show what a job writes, of a job that failed its errors. */
function written(job) {
  if (!showsOutput(job)) return null;
  if (!looks) {
    looks = true;
    if (FAILED.includes(job.outcome)) output.stream = "stderr";
    queueMicrotask(() => output.look());
  }
  return output.view();
}

function facts(job) {
  const list = [
    [t("job.asked"), requestOf(job)],
    [t("job.walltime"), duration(job.walltime)],
    [t("job.properties"), job.properties && h("code", {}, job.properties)],
    [t("job.types"), job.types.length > 0 && h("bdi", {}, job.types.join(", "))],
    [t("job.submitted"), time(job.submitted)],
    [job.started ? t("job.started") : t("job.planned"), time(job.started ?? job.planned)],
    [t("job.ended"), job.ended && time(job.ended)],
    [t("job.exit_code"), job.exit_code != null && job.ended && exitText(job.exit_code)],
    [t("job.dependencies"), job.dependencies.length > 0 && job.dependencies.map((other) => [jobLink({ id: other }), " "])],
    [t("job.resubmitted_from"), job.resubmitted_from && jobLink({ id: job.resubmitted_from })],
    [t("job.message"), job.message && h("bdi", {}, job.message)],
  ];
  return h("dl", { class: "facts card", key: "facts" }, list.filter(([, value]) => value).map(([label, value]) => h("div", { key: label }, h("dt", {}, label), h("dd", {}, value))));
}

function exitText(status) {
  const { code, signal } = exitOf(status);
  return signal ? t("job.by_signal", { signal }) : String(code);
}

function timeline(job) {
  const columns = [
    { key: "state", label: t("job.state"), cell: (each) => stateChip(each.state) },
    { key: "from", label: t("job.from"), cell: (each) => time(each.from) },
    { key: "time", label: t("job.duration"), kind: "number", cell: (each) => duration((each.to ?? now()) - each.from) },
  ];
  return h("section", { class: "card", key: "timeline" }, h("h2", {}, t("job.timeline")), table(t("job.timeline"), columns, job.states, (each) => `${each.state} ${each.from}`, "–"));
}

function request(job) {
  const lines = [[t("job.command"), job.command], [t("job.request"), job.initial_request], [t("job.directory"), job.directory], ["stdout", job.stdout], ["stderr", job.stderr]].filter(([, text]) => text);
  if (!lines.length) return null;
  return h("section", { class: "card", key: "request" }, h("h2", {}, t("job.request")),
    lines.map(([label, text]) => h("div", { class: "code", key: label }, h("span", { class: "faint" }, label), h("pre", { tabindex: "0", "aria-label": label }, text),
      h("button", { type: "button", class: "quiet", "aria-label": t("copy_what", { what: label }), on: { click: (event) => copy(text, event.currentTarget) } }, t("copy")))));
}

function resources(job) {
  if (!job.nodes.length) return null;
  return h("section", { class: "card", key: "resources" }, h("h2", {}, t("job.resources", { n: job.resources.length })),
    h("p", {}, job.nodes.toSorted(naturally).map((name, place) => [place ? ", " : null, nodeLink(name)])),
    h("p", { class: "faint" }, t("job.resource_ids"), " ", job.resources.join(" ")));
}

function events(job) {
  const columns = [
    { key: "date", label: t("event.date"), cell: (event) => time(event.date) },
    { key: "text", label: t("event.text"), kind: "text", cell: eventSentence },
    { key: "nodes", label: t("nodes.title"), cell: (event) => nodeLinks(event.nodes) },
  ];
  return h("section", { class: "card", key: "events" }, h("h2", {}, t("events.title")), table(t("events.title"), columns, eventGroups(job.events), (event) => event.id, t("events.none")));
}

const ofThisJob = new Set(["state", "event"]);
const ofAll = new Set(["jobs", "gantt"]);
const actions = run({ load, view, shown: () => (keepFocus(), output.scroll()), concerns: ({ name, data }) => ofAll.has(name) || (ofThisJob.has(name) && data.job === id) });
