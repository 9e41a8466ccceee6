// What came of a request that somebody has made, and how it is told.
import { h } from "./dom.js";
import { t } from "./words.js";

/** Types of the answers of a service whose database does not answer. */
const LOST = ["database-unavailable", "database-full", "database-refused"];

/** Return why a request was refused. */
export function refusal(error) {
  if (!error.record) return t("problem.unreachable");
  return LOST.includes(error.record.type) ? t("problem.database") : error.message;
}

/** Make a request; return what is told of it: {text}, of a refusal {text, hint, status, isBad}. */
export async function outcome(request) {
  try {
    const answer = (await request()) ?? {};
    return { text: joined(t("act.done"), answer.message, answer.done, ...(answer.warnings ?? [])) };
  } catch (error) {
    const { hint, output, status } = error.record ?? {};
    return { text: refusal(error), hint: joined(hint, output), status, isBad: true };
  }
}

/** Show it; `more` stands behind it. */
export function notice(told, more = null) {
  return told && h("p", { key: "told", class: told.isBad ? "notice bad" : "notice", role: told.isBad ? "alert" : "status" },
    h("bdi", {}, joined(told.text, told.hint)), more && [" ", more]);
}

function joined(...texts) {
  return texts.filter(Boolean).join(" ");
}
