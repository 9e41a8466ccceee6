// The form by which the owner of an advance reservation changes it.
import { patch } from "./common/api.js";
import { h } from "./common/dom.js";
import { t } from "./common/words.js";
import { ChangeForm } from "./change-form.js";
import { commandLine, dateField, textField, tick } from "./reservation-fields.js";
import { commandOf } from "./reservation-wishes.js";

export class Alteration extends ChangeForm {
  /** Return what differs from the record: the body of the request. */
  body(record) {
    const was = wishesOf(record), body = {};
    for (const [name, value] of Object.entries(this.changes)) {
      if (value === was[name]) continue;
      if (name === "from") body.start = value;
      else if (name === "to") body.end = value;
      else if (name === "users") body.users = value.split(/[ ,]+/).filter(Boolean);
      else if (name === "hard" || name === "replace") body[name] = value === "yes";
      else body[name] = value || null;
    }
    return body;
  }

  view(record) {
    const wished = { ...wishesOf(record), ...this.changes }, body = this.body(record);
    const alter = (changes) => this.alter(changes);
    return h("details", { class: "card", key: "alter" }, h("summary", {}, t("ar.alter")),
      h("form", { class: "submit", on: { submit: (event) => this.send(event, () => patch(`reservations/${record.id}`, this.body(record))) } },
        h("div", { class: "filters" },
          dateField("from", t("job.from"), wished.from, alter), dateField("to", t("job.until"), wished.to, alter),
          textField("name", t("filter.name"), wished.name, alter), textField("account", t("ar.account"), wished.account, alter),
          textField("users", t("ar.access"), wished.users, alter, { kind: "long" }),
          tick("hard", t("ar.hard"), wished.hard === "yes", alter), tick("replace", t("ar.replace"), wished.replace === "yes", alter)),
        Object.keys(body).length > 0 && commandLine(commandOf(body, record.id)),
        h("p", { key: "send" }, h("button", { disabled: this.isSending || !Object.keys(body).length }, this.isSending ? t("submit.asking") : t("ar.change")))),
      this.answer());
  }
}

function wishesOf(record) {
  const users = [...record.acl_list, ...record.xacl_list.map((each) => `!${each}`)].join(", ");
  return { from: record.start_time, to: record.end_time, name: record.ar_name, account: record.account, users, hard: record.error_handling === "hard" ? "yes" : "", replace: record.replace ? "yes" : "" };
}
