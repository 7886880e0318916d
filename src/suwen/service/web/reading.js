// A whole document in a window: its passages with the state of each, its metadata, and a way to delete it.

import { call } from "./api.js";
import { closable } from "./dialogs.js";
import { state } from "./hits.js";
import { byId, fill, languageOf, node } from "./nodes.js";
import { notice, trouble } from "./notices.js";
import { number, say } from "./words.js";

let shown = null;
let sure = false;
let mayDelete = () => true;

/** Make the window work; `writable` says whether documents may be deleted here. */
export function begin(writable) {
  mayDelete = writable;
  closable(byId("document-dialog"));
  byId("document-delete").addEventListener("click", remove);
}

/** Show a document. */
export async function open(id) {
  shown = { id, title: id };
  doubt();
  fill(byId("document-title"), id);
  fill(byId("document-body"), node("p.soft", {}, say("document.loading")));
  byId("document-delete").hidden = true;
  byId("document-dialog").showModal();
  try {
    const found = await call(`/documents/${encodeURIComponent(id)}`);
    if (shown.id === id) show(found);
  } catch (problem) {
    fill(byId("document-body"), trouble(problem));
  }
}

function show(found) {
  const title = found.title || found.id;
  shown.title = title;
  byId("document-delete").hidden = !mayDelete();
  fill(byId("document-title"), title);
  byId("document-title").lang = languageOf(title);
  const metadata = Object.entries(found.metadata || {}).map(([field, value]) =>
    node("li", {}, node("span", {}, node("span.name", {}, field), node("span.value", {}, String(value)))),
  );
  const passages = (found.passages || []).map((passage, at) =>
    node(
      "li",
      {},
      node("p.facts", {}, say("document.passage", { number: number(at + 1) }), " ", state(passage), " ",
        node("span.soft", {}, say("why.characters", { start: passage.start, end: passage.end }))),
      node("p.text", { lang: languageOf(passage.text || "") }, passage.text || ""),
    ),
  );
  fill(
    byId("document-body"),
    node("p.soft", {}, say("document.facts", { id: found.id, version: String(found.version).slice(0, 8) })),
    metadata.length ? node("ul.meta", {}, metadata) : null,
    node("ol.passages", { "aria-label": say("document.passages", { count: passages.length }) }, passages),
  );
}

function doubt() {
  sure = false;
  byId("document-delete").textContent = say("document.delete");
}

async function remove() {
  if (!sure) {
    sure = true;
    byId("document-delete").textContent = say("document.delete.sure");
    return;
  }
  try {
    await call(`/documents/${encodeURIComponent(shown.id)}`, { method: "DELETE" });
    byId("document-dialog").close();
    fill(byId("notices"), notice("good", say("document.deleted", { title: shown.title }), ""));
    dispatchEvent(new Event("suwen:changed"));
  } catch (problem) {
    doubt();
    byId("document-body").prepend(trouble(problem));
  }
}
