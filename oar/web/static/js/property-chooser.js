// Which resources are shown, by the values of their properties: what people chose in Monika, with the same address.
import { change, values } from "./common/address.js";
import { get } from "./common/api.js";
import { h } from "./common/dom.js";
import { naturally } from "./common/format.js";
import { t } from "./common/words.js";

export class PropertyChooser {
  isOpen = false;
  properties = null;
  trouble = null;

  /** `redraw` shows the page anew, `done` loads it anew. */
  constructor(redraw, done) {
    Object.assign(this, { redraw, done });
  }

  /** Return what is chosen, NAME=VALUE each. */
  get chosen() {
    return values("props");
  }

  choose(props) {
    change({ props });
    this.done();
  }

  toggle(text) {
    const { chosen } = this;
    this.choose(chosen.includes(text) ? chosen.filter((each) => each !== text) : [...chosen, text]);
  }

  /** Learn which values there are, when somebody wants to choose. */
  async open(isOpen) {
    this.isOpen = isOpen;
    if (isOpen && !this.properties) {
      const answer = await get("property-values").catch((error) => ((this.trouble = error.record ? error.message : t("problem.unreachable")), null));
      if (answer) [this.properties, this.trouble] = [answer.items, null];
    }
    this.redraw();
  }

  view() {
    const { chosen } = this;
    const toggle = (event) => event.target.open !== this.isOpen && this.open(event.target.open);
    return h("section", { key: "chooser", class: "chooser" },
      h("details", { key: "values", on: { toggle } }, h("summary", {}, t("props.title")), this.isOpen && this.inside()),
      chosen.length > 0 && h("p", { key: "chosen", class: "row" },
        chosen.map((text) => h("button", { type: "button", class: "chip", key: text, "aria-label": t("props.remove", { text }), on: { click: () => this.toggle(text) } }, h("bdi", {}, text), h("span", { "aria-hidden": "true" }, " ×"))),
        h("button", { type: "button", class: "quiet", key: " none", on: { click: () => this.choose([]) } }, t("filter.none"))));
  }

  inside() {
    if (this.trouble) return h("p", { class: "bad", role: "alert" }, this.trouble);
    if (!this.properties) return h("p", { class: "faint" }, t("submit.asking"));
    return [
      h("p", { key: "hint", class: "faint" }, t("props.hint")),
      h("div", { key: "properties", class: "properties" }, this.properties.map((property) => this.property(property))),
    ];
  }

  property({ name, values: all, more }) {
    const ticks = [...all].sort(naturally).map((value) => {
      const text = `${name}=${value}`;
      return h("label", { key: value, class: "tick" }, h("input", { type: "checkbox", checked: this.chosen.includes(text), on: { change: () => this.toggle(text) } }), h("bdi", {}, ` ${value}`));
    });
    return h("fieldset", { key: name }, h("legend", {}, h("bdi", {}, name)), h("div", { key: "ticks", class: "ticks", tabindex: "0", role: "group", "aria-label": name }, ticks),
      more > 0 && h("p", { key: "more", class: "faint" }, t("nodes.more", { n: more })));
  }
}
