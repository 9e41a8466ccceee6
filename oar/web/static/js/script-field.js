// The script of a job: typed, or read from a file; it is sent with the request and stands in no address.
import { h } from "./common/dom.js";
import { number } from "./common/format.js";
import { t } from "./common/words.js";

/** Characters that the service takes. */
const LONGEST = 2 ** 20;

export class ScriptField {
  /** `changed` is called when there is another script. */
  constructor(changed) {
    Object.assign(this, { changed, isOpen: false, text: "", name: "job.sh", trouble: "" });
  }

  /** The script, "" while a command is asked for. */
  get script() {
    return this.isOpen ? this.text : "";
  }

  open(isOpen) {
    this.isOpen = isOpen;
    this.changed();
  }

  take(text) {
    this.text = text.replaceAll("\r\n", "\n");
    this.trouble = text.length > LONGEST ? t("script.too_long", { most: number(LONGEST) }) : text.includes("\0") ? t("script.no_text") : "";
    this.changed();
  }

  async read(event) {
    const [file] = event.target.files;
    if (!file) return;
    this.name = file.name;
    if (file.size > 4 * LONGEST) this.trouble = t("script.too_long", { most: number(LONGEST) }), this.changed();
    else this.take(await file.text());
  }

  view() {
    return h("div", { class: "script", key: "script" },
      h("label", { class: "long" }, h("span", { class: "faint" }, t("script.script")),
        h("textarea", { name: "script", rows: 10, spellcheck: "false", placeholder: "#!/bin/bash", value: this.text, on: { input: (event) => this.take(event.target.value) } })),
      h("label", {}, h("span", { class: "faint" }, t("script.file"), " "), h("input", { type: "file", name: "file", on: { change: (event) => this.read(event) } })),
      h("p", { class: "faint" }, t("script.lines")),
      this.trouble && h("p", { class: "bad", role: "alert" }, this.trouble));
  }
}
