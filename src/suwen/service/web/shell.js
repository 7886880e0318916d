// What both pages share: the bar above, the language, light and dark, the keys, and what the service says of itself.

import { ApiError, call, key } from "./api.js";
import * as dialogs from "./dialogs.js";
import { byId, fill } from "./nodes.js";
import { forgetKey, notice } from "./notices.js";
import { begin as beginWords, language, number, say, set } from "./words.js";

const TYPING = "input:not([type=radio]):not([type=checkbox]), textarea, select, [contenteditable]";

/** Begin a page. */
export function begin(askedLanguage) {
  dialogs.begin();
  beginWords(askedLanguage);
  const root = document.documentElement;
  byId("theme").addEventListener("click", toggleTheme);
  byId("forget-key").addEventListener("click", forgetKey);
  byId("language").addEventListener("click", () => set(language() === "zh" ? "en" : "zh"));
  byId("skip").addEventListener("click", (event) => {
    // Not by the address: what stands after the # is the search.
    event.preventDefault();
    byId("main").focus();
  });
  const keyed = () => (byId("forget-key").hidden = !key());
  addEventListener("suwen:key", keyed);
  addEventListener("suwen:language", tongue);
  keyed();
  tongue();
  for (const link of document.querySelectorAll("header nav a")) {
    if (link.pathname === location.pathname) link.setAttribute("aria-current", "page");
  }
  root.dataset.ready = "yes";
}

function tongue() {
  byId("language").textContent = say("language.short");
  byId("language").lang = language() === "zh" ? "en" : "zh-Hans";
}

export function toggleTheme() {
  document.documentElement.dispatchEvent(new Event("suwen:theme"));
}

/** What the service says of itself; waits while the index is being opened. */
export async function about() {
  let waited = false;
  for (;;) {
    try {
      const info = await call("/info");
      if (waited) fill(byId("notices"));
      // Labels are writes.
      byId("to-review").hidden = !info.reviews || !mayWrite(info);
      byId("foot-index").textContent = [info.index?.name, `suwen ${info.version ?? ""}`].filter(Boolean).join(" · ");
      return info;
    } catch (problem) {
      if (!(problem instanceof ApiError) || problem.code !== "loading") throw problem;
      waited = true;
      fill(byId("notices"), notice("calm", say("loading"), ""));
      await new Promise((go) => setTimeout(go, 1000 * Math.min(problem.retryAfter || 1, 5)));
    }
  }
}

/** Whether who asks may write, as far as the key goes: without keys everybody may. */
export const mayWrite = ({ role }) => role === null || role === undefined || role === "write";

/** How large the index is, for a sentence. */
export function sizes({ index }) {
  return { name: index.name, documents: number(index.documents), passages: number(index.passages) };
}

/** Bind keys to actions. None is taken from who is typing, and none from an open window. */
export function keys(actions) {
  document.addEventListener("keydown", (event) => {
    // Enter or a letter that ends a Chinese input method's composition is not a command.
    if (event.isComposing || event.keyCode === 229 || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    const typing = event.target.matches?.(TYPING);
    if (!typing && event.key.length === 1 && event.key !== "?" && !dialogs.singleKeys()) return;
    const act = actions[typing ? `typing:${event.key}` : event.key];
    if (act && act(event) !== false) event.preventDefault();
  });
}

export const help = dialogs.help;
