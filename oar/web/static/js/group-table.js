// How busy the cluster is by the values of a property, and when something is free again; licences and the like by type.
import { change, parameters } from "./common/address.js";
import { get } from "./common/api.js";
import { h } from "./common/dom.js";
import { number, time } from "./common/format.js";
import { shareBar, table } from "./common/parts.js";
import { page } from "./common/site.js";
import { t } from "./common/words.js";

/** Milliseconds after which the numbers are asked for again. */
const AGE = 20_000;

export class GroupTable {
  record = null;
  asked = 0;
  trouble = null;

  /** `show` is called when there is something new to show. */
  constructor(show) {
    this.show = show;
  }

  /** Ask for the numbers if they are old, or of another property. */
  async renew(isOther = false) {
    if (!isOther && Date.now() - this.asked < AGE) return;
    this.asked = Date.now();
    try {
      [this.record, this.trouble] = [await get("groups", { by: parameters().by }), null];
    } catch (error) {
      this.trouble = error.record ? error.message : null;
    }
    this.show();
  }

  /** Return the types of resources on no node, such as licences, of which none is free. */
  empty() {
    return (this.record?.pools ?? []).filter((pool) => !pool.free);
  }

  view() {
    const { record, trouble } = this;
    if (!record) return trouble && h("p", { class: "notice bad wide", role: "alert", key: "groups" }, trouble);
    return h("section", { class: "card wide", key: "groups" },
      h("h2", {}, t("groups.title")),
      h("div", { class: "filters" }, this.choice()),
      trouble && h("p", { class: "bad", role: "alert", key: "trouble" }, trouble),
      record.by && table(t("groups.by", { property: record.by }), columns(record.by, record.by), record.items, (each) => each.value, t("nodes.none")),
      record.more > 0 && h("p", { class: "faint", key: "more" }, t("nodes.more", { n: record.more })),
      record.pools.length > 0 && [h("h3", { key: "pools title" }, t("groups.pools")), table(t("groups.pools"), columns(null, t("groups.type")), record.pools, (each) => each.value, "–")]);
  }

  choice() {
    const { by, properties } = this.record;
    const select = (event) => (change({ by: event.target.value }), this.renew(true));
    return h("label", { key: "by" }, h("span", {}, t("groups.property")),
      h("select", { name: "by", value: by ?? "", on: { change: select } }, ["", ...properties].map((each) => h("option", { key: each, value: each, selected: each === (by ?? "") }, each || t("nodes.no_group")))));
  }
}

/** Return the columns of a table; `by`: the property of which a value leads to its nodes. */
function columns(by, label) {
  const name = ({ value }) => h("bdi", {}, value || "–"), busy = (each) => each.used + each.reserved;
  return [
    { key: "value", label: h("bdi", {}, label), cell: (each) => (by && each.value ? h("a", { href: page("nodes", null, { props: `${by}=${each.value}` }) }, name(each)) : name(each)) },
    { key: "free", label: t("condition.free"), kind: "number", cell: (each) => number(each.free) },
    { key: "busy", label: t("condition.used"), kind: "number", cell: (each) => number(busy(each)) },
    { key: "total", label: t("groups.total"), kind: "number", cell: (each) => number(each.total) },
    { key: "share", label: t("groups.share"), cell: (each) => shareBar(busy(each), each.total) },
    { key: "next", label: t("groups.next"), cell: (each) => (each.free ? t("groups.now") : time(each.next_free)) },
  ];
}
