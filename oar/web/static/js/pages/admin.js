// How the installation is: versions, the server and its modules, rounds, the database, rules, keys (administrators).
import { Acts } from "../acts.js";
import { get, post } from "../common/api.js";
import { h } from "../common/dom.js";
import { bytes, number, time } from "../common/format.js";
import { table } from "../common/parts.js";
import { run } from "../common/page.js";
import { page } from "../common/site.js";
import { t } from "../common/words.js";
import { queueColumns } from "../queue-table.js";

const acts = new Acts(() => actions.show(), () => actions.refresh());

function view({ versions, database, server, modules, rounds, queues, rules, keys }) {
  return [
    h("h1", {}, t("admin.title")),
    !server && h("p", { class: "notice bad", key: "silent" }, t("admin.silent"), " ", h("code", {}, "systemctl status oar-server")),
    h("dl", { class: "facts card", key: "facts" }, facts(versions, database, server).map(([label, value]) => h("div", { key: label }, h("dt", {}, label), h("dd", {}, value)))),
    h("section", { class: "card", key: "rounds" }, h("h2", {}, t("admin.rounds")), roundsOf(rounds),
      server && acts.view([{ key: "round", label: t("admin.look"), run: () => post("server/notices", { tag: "Term" }) }], "round")),
    modules && h("section", { class: "card", key: "modules" }, h("h2", {}, t("admin.modules")), table(t("admin.modules"), MODULES, Object.entries(modules).map(([name, record]) => ({ name, ...record })), (each) => each.name, "–")),
    h("section", { class: "card", key: "queues" }, h("h2", {}, t("queues.title"), " ", h("a", { class: "more", href: page("queues") }, t("admin.change"))), table(t("queues.title"), queueColumns(), queues, (queue) => queue.name, t("queues.none"))),
    rules && h("section", { class: "card", key: "rules" }, h("h2", {}, t("rules.title"), " ", h("a", { class: "more", href: page("rules") }, t("admin.change"))), table(t("rules.title"), RULES, rules, (rule) => rule.id, t("rules.none"))),
    h("section", { class: "card", key: "keys" }, h("h2", {}, t("admin.keys")), table(t("admin.keys"), KEYS, keys, (each) => each.key, t("admin.no_keys"))),
  ];
}

function facts(versions, database, server) {
  const differs = (version) => h("span", { class: version === versions.api ? null : "bad" }, version ?? "–");
  return [
    [t("admin.version"), versions.api],
    [t("admin.server"), server ? [differs(versions.server), " · ", t("admin.since"), " ", time(Math.floor(server.start))] : h("span", { class: "bad" }, t("admin.silent"))],
    [t("admin.schema"), differs(versions.schema)],
    ["PostgreSQL", database.postgresql],
    [t("admin.size"), bytes(database.size)],
    [t("admin.connections"), t("job.of", { spent: number(database.connections), whole: number(database.most_connections) })],
    ...(server ? [[t("admin.actions"), t("admin.in_hand", { running: number(server.runner.running), waiting: number(server.runner.waiting) })]] : []),
  ];
}

/** Tell when the last round was, and how long rounds take. */
function roundsOf({ last, durations }) {
  const lines = [[t("admin.last_round"), time(last)]];
  if (durations?.number) {
    lines.push([t("admin.rounds_since_start"), number(durations.number)], [t("admin.mean"), seconds(durations.sum / durations.number)]);
    const within = durations.bounds.find((_, place) => durations.counts[place] >= 0.95 * durations.number);
    if (within) lines.push([t("admin.most_within"), seconds(within)]);
  }
  return h("dl", { class: "facts" }, lines.map(([label, value]) => h("div", { key: label }, h("dt", {}, label), h("dd", {}, value))));
}

function seconds(value) {
  return `${number(Math.round(value * 1000) / 1000)} s`;
}

const MODULE_STATES = { down: t("module.down"), starting: t("module.starting"), idle: t("module.idle"), busy: t("module.busy"), ending: t("module.ending"), renewing: t("module.renewing") };

/** Show a state of a module; one that was never there is not needed: what it does is not asked for. */
function moduleState({ state, passes }) {
  if (state === "down" && !passes) return h("span", { class: "none" }, t("module.unused"));
  return h("span", { class: state === "down" ? "bad" : null }, MODULE_STATES[state] ?? state);
}

const MODULES = [
  { key: "name", label: t("admin.module"), cell: (each) => each.name },
  { key: "state", label: t("job.state"), cell: moduleState },
  { key: "passes", label: t("admin.passes"), kind: "number", cell: (each) => number(each.passes) },
  { key: "failures", label: t("admin.failures"), kind: "number", cell: (each) => h("span", { class: each.failures ? "bad" : null }, number(each.failures)) },
  { key: "restarts", label: t("admin.restarts"), kind: "number", cell: (each) => number(each.restarts) },
  { key: "start", label: t("admin.last_pass"), cell: (each) => time(Math.floor(each.last_start ?? 0)) },
  { key: "duration", label: t("job.duration"), kind: "number", cell: (each) => seconds(each.last_duration) },
];
const RULES = [
  { key: "id", label: t("node.id"), kind: "number", cell: (rule) => rule.id },
  { key: "priority", label: t("queue.priority"), kind: "number", cell: (rule) => rule.priority },
  { key: "state", label: t("job.state"), cell: (rule) => (rule.enabled ? t("rules.on") : t("rules.off")) },
  { key: "begins", label: t("admin.begins"), kind: "text", cell: (rule) => h("code", {}, rule.begins) },
];
const KEYS = [
  { key: "key", label: t("admin.key"), cell: (each) => h("code", {}, each.key) },
  { key: "value", label: t("admin.value"), kind: "text", cell: (each) => h("bdi", {}, each.value) },
  { key: "default", label: t("admin.default"), kind: "text", cell: (each) => h("bdi", {}, each.default) },
  { key: "meaning", label: t("admin.meaning"), kind: "text", cell: (each) => h("bdi", { lang: "en" }, each.meaning) },
];

const actions = run({ load: (signal) => get("administration", {}, signal), view, concerns: (message) => ["state", "jobs", "queues", "gantt"].includes(message.name) });
