// The words of the language in which the document was written: the same file as that of the service.
import { site } from "./site.js";

const answer = await fetch(`${site.static}i18n/${site.language}.json`);
const integers = new Intl.NumberFormat(site.language);
const texts = answer.ok ? await answer.json() : {};

/** Return a text with its values; of "one job|{n} jobs" the half that fits `n`. */
export function t(key, values = {}) {
  const [one, many] = (texts[key] ?? key).split("|");
  const isOne = values.n === 1 || (site.language === "fr" && values.n === 0);
  return (many === undefined || isOne ? one : many).replace(/\{(\w+)\}/g, (_, name) => (name === "n" && typeof values.n === "number" ? integers.format(values.n) : values[name]));
}
