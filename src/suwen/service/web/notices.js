// Things the person should know: what went wrong, what to do about it, what has just been done.

import { askForKey, keepKey } from "./api.js";
import { languageOf, node } from "./nodes.js";
import { find, say } from "./words.js";

/** A box with a title, a text and perhaps buttons: `notice("warn", title, text, button, …)`. */
export function notice(kind, title, text, ...more) {
  const role = kind === "bad" ? "alert" : "note";
  const parts = [node("p.title", {}, title), text ? node("p", { lang: languageOf(text) }, text) : null];
  return node(`div.notice.${kind}`, { role }, ...parts, ...more);
}

/** An error of the service, in the reader's language where its code is known, with the service's own words below. */
export function trouble(problem, retry = null) {
  const title = find(`error.${problem.code}`) || say("error.title");
  const text = problem.message || find(`error.${problem.code}.text`) || "";
  const facts = [problem.code, problem.requestId && say("error.request", { id: problem.requestId })];
  const buttons = [];
  if (retry && problem.status !== 401) buttons.push(node("button", { type: "button", onclick: retry }, say("retry")));
  if (problem.status === 401) buttons.push(otherKey("key.enter", retry));
  if (problem.code === "forbidden") buttons.push(otherKey("key.other", retry));
  return notice(
    "bad",
    title,
    text,
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

/** Forget the key of this tab and begin again. */
export function forgetKey() {
  keepKey(null);
  location.reload();
}
