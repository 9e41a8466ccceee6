// Administrators choose nodes and drain them or take them into maintenance; what is in the way is told before.
import { patch, post } from "./common/api.js";
import { Acts, reasonField } from "./acts.js";
import { Asking } from "./asking.js";
import { h } from "./common/dom.js";
import { jobLink, nodeLink, reservationLink, table } from "./common/parts.js";
import { number, time } from "./common/format.js";
import { page, site } from "./common/site.js";
import { t } from "./common/words.js";
import { dateField } from "./reservation-fields.js";

const FATES = { cut: t("maintain.cut"), delayed: t("maintain.delayed"), ends: t("maintain.ends") };
/** Jobs, and nodes that are not empty yet, that are listed. */
const MOST = 100;

export class NodeSelection {
  /** `redraw` shows the page anew, `done` loads it anew. */
  constructor(redraw, done) {
    this.names = site.administers ? new Set() : null;
    this.redraw = redraw;
    this.inView = [];
    this.period = { from: "", to: "" };
    this.reason = "";
    this.acts = new Acts(redraw, () => (this.acts.told.isBad || (this.reason = ""), done())); // who insists gives the same reason
    this.asking = new Asking(() => this.wishes(), (wishes) => post("resources/outlook", wishes), redraw);
  }

  /** Return the chosen ones among the nodes in view. */
  chosen() {
    return this.inView.filter((name) => this.names.has(name));
  }

  wishes() {
    const nodes = this.chosen(), { from, to } = this.period;
    return nodes.length ? { nodes, ...(from ? { from } : {}), ...(to ? { to } : {}) } : null;
  }

  /** Choose nodes; `isToggled`: those that are chosen are no longer. */
  choose(names, isToggled) {
    for (const name of names) if (!(isToggled && this.names.delete(name))) this.names.add(name);
    this.changed();
  }

  chooseNone(names) {
    for (const name of names) this.names.delete(name);
    this.changed();
  }

  changed() {
    this.acts.asked = this.acts.told = null;
    this.asking.soon();
    this.redraw();
  }

  /** Return the column of boxes for a table of nodes, null for who is no administrator. */
  column(names) {
    if (!this.names) return null;
    const count = names.filter((name) => this.names.has(name)).length, isAll = count === names.length;
    const all = h("input", { type: "checkbox", "aria-label": t("maintain.all"), title: t("maintain.all"), checked: isAll, indeterminate: count > 0 && !isAll, on: { change: () => (isAll ? this.chooseNone(names) : this.choose(names, false)) } });
    return { key: "chosen", label: all, cell: (node) => h("input", { type: "checkbox", "aria-label": t("maintain.one", { name: node.name }), checked: this.names.has(node.name), on: { change: () => this.choose([node.name], true) } }) };
  }

  /** Show how many nodes of those in view are chosen, what can be done with them, and what is in the way. */
  view(inView) {
    if (!this.names) return null;
    this.inView = inView;
    const nodes = this.chosen(), count = nodes.length;
    const all = h("button", { type: "button", key: "all", class: "quiet", on: { click: () => this.choose(inView, false) } }, t("maintain.all"));
    const none = count > 0 && h("button", { type: "button", key: "none", class: "quiet", on: { click: () => this.chooseNone(nodes) } }, t("many.none"));
    return h("section", { class: count ? "card acts" : "acts", key: "selection", "aria-label": t("maintain.title") },
      h("div", { class: "row", key: "count" }, h("b", {}, t("maintain.count", { n: count })), all, none, !count && h("span", { class: "faint" }, t("maintain.hint"))),
      count > 0 && h("div", { class: "filters", key: "why" }, reasonField(this.reason, (text) => (this.reason = text))),
      count > 0 && this.acts.view(this.possible(nodes)),
      count > 0 && this.before(nodes));
  }

  possible(nodes) {
    const change = (key, label, what, question) => ({ key, label, question, isForcible: true, run: (force) => patch("resources", { nodes, ...what(), force }) });
    const n = nodes.length, on = this.asking.answer?.jobs.filter((job) => !isPlanned(job)), known = on && !this.asking.isOld;
    const jobs = !known ? "" : on.length ? t("maintain.runs", { n: on.length }) : t("maintain.runs_none");
    return [
      change("drain", t("node.drain"), () => ({ drain: true, reason: this.reason }), `${t("maintain.drain", { n })} ${jobs}`),
      change("undrain", t("node.undrain"), () => ({ drain: false })),
      change("maintenance", t("node.maintenance"), () => ({ maintenance: true, reason: this.reason }), `${t("maintain.now", { n })} ${!known ? "" : on.length ? t("node.ends", { jobs: firstOf(on) }) : t("maintain.runs_none")}`),
      change("end", t("node.maintenance_end"), () => ({ maintenance: false })),
    ];
  }

  /** Show what would be if the nodes were taken away in a period. */
  before(nodes) {
    const { from, to } = this.period, { answer } = this.asking;
    const alter = (changes) => (Object.assign(this.period, changes), this.asking.soon(), this.redraw());
    return h("div", { key: "before", class: this.asking.isOld || this.asking.isAsking ? "aged" : null },
      h("h2", {}, t("maintain.before")),
      h("div", { class: "filters" }, dateField("from", t("job.from"), from, alter), dateField("to", t("job.until"), to, alter)),
      this.asking.trouble && h("p", { class: "bad", role: "alert" }, h("bdi", {}, this.asking.trouble)),
      answer ? outlook(answer) : !this.asking.trouble && h("p", { class: "faint" }, t("submit.asking")),
      from && to && h("p", { key: "reserve" }, h("a", { href: page("reservations", "new", { hosts: nodes.join(), from, to, users: "NONE", name: "maintenance" }) }, t("maintain.reserve")), h("span", { class: "faint" }, ` ${t("maintain.reserve_why")}`)));
  }
}

function isPlanned(job) {
  return ["Waiting", "Hold", "toAckReservation", "toError"].includes(job.state);
}

function firstOf(jobs, most = 20) {
  const rest = jobs.length - most;
  return jobs.slice(0, most).map((job) => job.id).join(", ") + (rest > 0 ? ` ${t("nodes.more", { n: rest })}` : "");
}

/** Show which jobs end before, are cut or delayed, which reservations are in the way, and when the nodes are empty. */
function outlook({ nodes, jobs, reservations }) {
  const count = (fate) => jobs.filter((job) => job.fate === fate).length;
  const parts = Object.keys(FATES).filter(count).map((fate) => `${number(count(fate))} ${FATES[fate]}`);
  const inTheWay = [...jobs].sort((one, other) => order(one) - order(other) || one.start - other.start);
  return [
    h("p", { key: "sum", role: "status" }, parts.length ? `${t("jobs.title")}: ${parts.join(", ")}.` : t("maintain.nothing"), " ", empty(nodes)),
    reservations.length > 0 && h("p", { key: "reservations" }, t("maintain.reservations"), " ", reservations.map((each) => [reservationLink(each), " (", h("bdi", {}, each.owner), ", ", time(each.start), " → ", time(each.end), ") "])),
    inTheWay.length > 0 && table(t("maintain.jobs"), COLUMNS, inTheWay.slice(0, MOST), (job) => job.id, "–"),
    inTheWay.length > MOST && h("p", { key: "rest", class: "faint" }, t("nodes.more", { n: inTheWay.length - MOST })),
  ];
}

function order(job) {
  return Object.keys(FATES).indexOf(job.fate);
}

/** Say when all nodes are empty, and of a few that are not yet which is when. */
function empty(nodes) {
  const first = Math.min(...nodes.map((node) => node.empty ?? Infinity));
  const busy = nodes.filter((node) => node.empty === null || node.empty > first).slice(0, 8);
  const last = nodes.some((node) => node.empty === null) ? t("maintain.never") : [t("maintain.all_empty"), " ", time(Math.max(...nodes.map((node) => node.empty)))];
  return [last, busy.length > 0 && [" (", busy.map((node, place) => [place ? ", " : null, nodeLink(node.name), " ", node.empty ? time(node.empty) : "–"]), ")"], "."];
}

const COLUMNS = [
  { key: "job", label: t("job.job"), cell: jobLink },
  { key: "user", label: t("job.user"), cell: (job) => h("bdi", {}, job.user) },
  { key: "fate", label: t("maintain.fate"), cell: (job) => FATES[job.fate] },
  { key: "from", label: t("job.from"), cell: (job) => time(job.start) },
  { key: "until", label: t("job.until"), cell: (job) => time(job.end) },
];
