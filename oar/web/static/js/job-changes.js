// The forms by which the owner of a job changes it: another walltime while it runs, other wishes while it waits.
import { get, patch, post } from "./common/api.js";
import { h } from "./common/dom.js";
import { duration } from "./common/format.js";
import { may } from "./common/job-acts.js";
import { refusal } from "./common/outcome.js";
import { quoted } from "./common/parts.js";
import { t } from "./common/words.js";
import { ChangeForm } from "./change-form.js";
import { commandLine, textField, tick } from "./reservation-fields.js";

/** Options of oarwalltime by the names of the API. */
const WAYS = { force: "--force", whole: "--whole", delay_next_jobs: "--delay-next-jobs" };
const WAY_WORDS = { force: t("walltime.force"), whole: t("walltime.whole"), delay_next_jobs: t("walltime.delay") };
/** Options of oaralter by the names of the API. */
const OPTIONS = { resources: "-l", properties: "-p", name: "-n", queue: "-q", project: "--project", notify: "--notify", dependencies: "-a", advance_reservation: "--ar" };
/** The word of oaralter for no advance reservation. */
const NOWHERE = "none";

export class WalltimeForm extends ChangeForm {
  standing = null;
  isOpen = false;

  /** Ask anew what the walltime may become, if somebody looks at it. */
  async renew(id) {
    if (!this.isOpen) return;
    this.standing = await get(`jobs/${id}/walltime`).catch((error) => ({ trouble: refusal(error) }));
    this.redraw();
  }

  view(job) {
    if (job.state !== "Running" || !may(job) || !job.walltime) return null;
    const toggle = (event) => event.target.open !== this.isOpen && ((this.isOpen = event.target.open), this.renew(job.id));
    return h("details", { class: "card", key: "walltime", on: { toggle } }, h("summary", {}, t("walltime.title")), this.inside(job), this.answer());
  }

  inside(job) {
    const { standing } = this;
    if (!standing) return h("p", { class: "faint" }, t("submit.asking"));
    if (standing.trouble) return h("p", { class: "bad" }, standing.trouble);
    if (!standing.is_enabled) return h("p", {}, t("walltime.disabled"));
    const { change } = this.body(standing), sign = this.changes.sign ?? "+";
    const alter = (changes) => this.alter(changes);
    const signs = [["+", t("walltime.more")], standing.may.reduce && ["-", t("walltime.less")], ["", t("walltime.new")]].filter(Boolean);
    return h("form", { class: "submit", on: { submit: (event) => this.send(event, () => post(`jobs/${job.id}/walltime`, this.body(standing))) } },
      h("p", {}, allowed(standing)), state(standing),
      h("div", { class: "filters" },
        h("label", { key: "sign" }, h("span", {}, t("walltime.kind")), h("select", { name: "sign", value: sign, on: { change: (event) => alter({ sign: event.target.value }) } }, signs.map(([value, word]) => h("option", { key: value, value, selected: value === sign }, word)))),
        textField("time", t("walltime.time"), this.changes.time ?? "", alter, { attributes: { placeholder: "1:00", inputmode: "text" } }),
        Object.keys(WAYS).filter((way) => standing.may[way]).map((way) => tick(way, WAY_WORDS[way], this.changes[way] === "yes", alter))),
      change && commandLine(["oarwalltime", ...this.ways(standing).map((way) => WAYS[way]), job.id, change].join(" ")),
      h("p", { key: "send" }, h("button", { disabled: this.isSending || !change }, this.isSending ? t("submit.asking") : t("walltime.ask"))));
  }

  /** Return the ways that somebody has ticked and may go. */
  ways(standing) {
    return Object.keys(WAYS).filter((way) => standing.may[way] && this.changes[way] === "yes");
  }

  /** Return the body of the request; `change` is empty as long as no time is given. */
  body(standing) {
    const { sign = "+", time = "" } = this.changes;
    return { change: time.trim() && sign + time.trim(), ...Object.fromEntries(this.ways(standing).map((way) => [way, true])) };
  }
}

function allowed({ walltime, possible_increase: possible }) {
  const most = possible === null ? t("walltime.no_limit") : possible ? t("walltime.possible", { time: duration(possible) }) : t("walltime.none");
  return `${t("walltime.is", { time: duration(walltime) })} ${most}`;
}

/** Show what was granted, and what is asked and not granted yet. */
function state({ granted, pending, timeout }) {
  const signed = (seconds) => `${seconds < 0 ? "−" : "+"}${duration(Math.abs(seconds))}`;
  return (granted !== 0 || pending !== 0) && h("p", { key: "state", role: "status" }, [
    granted !== 0 && t("walltime.granted", { time: signed(granted) }),
    pending !== 0 && t("walltime.pending", { time: signed(pending) }), pending !== 0 && timeout && t("walltime.dropped", { time: duration(timeout) }),
  ].filter(Boolean).join(" "));
}

export class JobAlteration extends ChangeForm {
  /** Return what differs from the job: the body of the request. */
  body(job) {
    const was = wishesOf(job), body = {};
    for (const [name, value] of Object.entries(this.changes)) {
      const text = value.trim();
      if (text === was[name]) continue;
      if (name === "dependencies") body[name] = text.split(/[ ,]+/).filter(Boolean);
      else if (name === "advance_reservation") body[name] = text === NOWHERE ? null : text || null;
      else if (name === "resources") text && (body[name] = text); // the field does not hold what they are
      else body[name] = text || null;
    }
    return body;
  }

  view(job) {
    if (!["Waiting", "Hold"].includes(job.state) || job.reservation !== "None" || !may(job)) return null;
    const body = this.body(job), wished = { ...wishesOf(job), ...this.changes }, alter = (changes) => this.alter(changes);
    const field = (name, label, more) => textField(name, label, wished[name], alter, more);
    return h("details", { class: "card", key: "alter" }, h("summary", {}, t("alter.title")),
      h("form", { class: "submit", on: { submit: (event) => this.send(event, () => patch(`jobs/${job.id}`, this.body(job))) } },
        h("p", { class: "faint" }, t("alter.hint")),
        h("div", { class: "filters" },
          field("resources", t("alter.resources"), { kind: "long", attributes: { placeholder: job.resources_asked || "/nodes=2,walltime=1:00" } }),
          field("properties", t("job.properties"), { kind: "long", attributes: { placeholder: "gpu = 'YES'" } }),
          field("name", t("filter.name")), field("queue", t("filter.queue")), field("project", t("filter.project")),
          field("dependencies", t("job.dependencies"), { attributes: { placeholder: "4217, 4218" } }),
          field("advance_reservation", t("alter.advance_reservation"), { attributes: { placeholder: t("alter.none") } }),
          field("notify", t("alter.notify"), { kind: "long", attributes: { placeholder: "mail:alice@example.org" } })),
        Object.keys(body).length > 0 && commandLine(commandOf(job.id, body)),
        h("p", { key: "send" }, h("button", { disabled: this.isSending || !Object.keys(body).length }, this.isSending ? t("submit.asking") : t("alter.send")))),
      this.answer());
  }
}

function wishesOf(job) {
  return { resources: "", properties: job.properties ?? "", name: job.name ?? "", queue: job.queue, project: job.project ?? "", dependencies: job.dependencies.join(", "), notify: job.notify ?? "", advance_reservation: String(job.advance_reservation ?? "") };
}

/** Return the command that does the same; an empty word takes a value away. */
function commandOf(id, body) {
  const words = Object.entries(body).flatMap(([name, value]) => {
    const nothing = name === "advance_reservation" ? NOWHERE : "";
    const values = Array.isArray(value) ? (value.length ? value : [nothing]) : [value ?? nothing];
    return values.flatMap((each) => [OPTIONS[name], each]);
  });
  return ["oaralter", ...words, String(id)].map(quoted).join(" ");
}
