// Things the person should know: what went wrong, what to do about it, what has just been done.

import { askForKey, keepKey } from "./api.js";
import { clear as clearPast } from "./past.js";
import { languageOf, node } from "./nodes.js";
import { find, language, say } from "./words.js";

/** A box with a title, a text and perhaps buttons: `notice("warn", title, text, button, …)`. */
export function notice(kind, title, text, ...more) {
  const role = kind === "bad" ? "alert" : "note";
  const parts = [node("p.title", {}, title), text ? node("p", { lang: languageOf(text) }, text) : null];
  return node(`div.notice.${kind}`, { role }, ...parts, ...more);
}

// What passes by itself, or may: asking for anything else again would be answered the same.
const PASSING = new Set(["unreachable", "unreadable", "overloaded", "timeout", "loading", "stopping", "internal",
  "slow_client", "index_locked", "writer_stuck"]);

/**
 * An error of the service in the reader's language, with the service's own words where that is theirs, or below.
 * `words` names the reader's, where those of the code speak of something else than what was done.
 */
export function trouble(problem, retry = null, words = `error.${problem.code}`) {
  const title = find(words) || say("error.title");
  const fix = find(`${words}.text`);
  // The service speaks English, also of fields and values that are Chinese.
  const own = problem.message && language() !== "en" ? problem.message : null;
  const text = own && fix ? fix : problem.message || fix || "";
  const facts = [problem.code, problem.requestId && say("error.request", { id: problem.requestId })];
  const buttons = [];
  if (retry && PASSING.has(problem.code)) buttons.push(node("button", { type: "button", onclick: retry }, say("retry")));
  if (problem.status === 401) buttons.push(otherKey("key.enter", retry));
  if (problem.code === "forbidden") buttons.push(otherKey("key.other", retry));
  return notice(
    "bad",
    title,
    text,
    own && fix ? node("details.own", {}, node("summary", {}, say("error.own")), node("p", { lang: "en" }, own)) : null,
    node("p.facts", {}, facts.filter(Boolean).join(" · ")),
    buttons.length ? node("div.buttons", {}, buttons) : null,
  );
}

function otherKey(label, retry) {
  const change = async () => {
    const given = await askForKey(false);
    if (given && retry) retry();
  };
  return node("button", { type: "button", onclick: change }, say(label));
}

/** Forget the key of this tab, and with it what was searched, and begin again. */
export function forgetKey() {
  clearPast();
  keepKey(null);
  location.reload();
}
