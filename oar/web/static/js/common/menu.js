// The choices of who looks: theme, time zone.
import { draw, h } from "./dom.js";
import { ZONES, zone } from "./format.js";
import { site } from "./site.js";
import { t } from "./words.js";

const THEMES = ["system", "light", "dark"];

function theme() {
  return document.documentElement.dataset.theme ?? "system";
}

function choose(chosen) {
  if (chosen === "system") localStorage.removeItem("oar.theme"), delete document.documentElement.dataset.theme;
  else localStorage.setItem("oar.theme", chosen), (document.documentElement.dataset.theme = chosen);
  dispatchEvent(new Event("oar:theme"));
  show();
}

function chooseZone(chosen) {
  localStorage.setItem("oar.zone", chosen);
  location.reload();
}

function selection(label, values, chosen, word, take) {
  const options = values.map((value) => h("option", { value, selected: value === chosen }, word(value)));
  return h("label", {}, h("span", {}, label), h("select", { value: chosen, on: { change: (event) => take(event.target.value) } }, options));
}

const THEME_WORDS = { system: t("theme.system"), light: t("theme.light"), dark: t("theme.dark") };
const ZONE_WORDS = { site: t("zone.site", { zone: site.zone }), browser: t("zone.browser"), utc: "UTC" };

function show() {
  const zones = ZONES.filter((each) => each !== "site" || site.zone);
  draw(
    document.getElementById("choices"),
    selection(t("theme.label"), THEMES, theme(), (value) => THEME_WORDS[value], choose),
    selection(t("zone.label"), zones, zone(), (value) => ZONE_WORDS[value], chooseZone),
  );
}

/** Show the choices. */
export function setUpMenu() {
  show();
}
