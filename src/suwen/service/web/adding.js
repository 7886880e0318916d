// Adding a document and finding it in the next request: the window, what is sent, and what is said afterwards.

import { ApiError, call } from "./api.js";
import { closable } from "./dialogs.js";
import { byId, fill, node } from "./nodes.js";
import { notice, trouble } from "./notices.js";
import { milliseconds, number, say } from "./words.js";

/** A name that no other document has, and that sorts by time. */
export function freshId(now = new Date()) {
  const stamp = now.toISOString().replace(/[-:]/g, "").replace("T", "-").slice(0, 15);
  const random = [...crypto.getRandomValues(new Uint8Array(3))].map((one) => one.toString(16).padStart(2, "0"));
  return `note-${stamp}-${random.join("")}`;
}

/** Metadata as it is typed, one `field=value` a line; throws the words to say of a line that is not. */
export function metadataOf(text) {
  const metadata = Object.create(null);
  text.split("\n").forEach((line, at) => {
    if (!line.trim()) return;
    const cut = line.indexOf("=");
    const field = line.slice(0, cut).trim();
    const value = line.slice(cut + 1).trim();
    if (cut < 1 || !field || !value) throw new Error(say("add.bad", { line: at + 1, text: line.trim() }));
    metadata[field] = /^-?(0|[1-9]\d{0,14})(\.\d+)?$/.test(value) ? Number(value) : value;
  });
  return metadata;
}

/** What to search for when nothing else is asked: the title, or the first sentence. */
export function questionOf(title, text) {
  const first = text.trim().split(/[。！？!?\n]|\.\s/u)[0];
  return [...(title.trim() || first)].slice(0, 80).join("").trim();
}

/** Make the window work. `found(question, document)` searches and gives the document's rank on the page, or null. */
export function begin(found) {
  const dialog = byId("add-dialog");
  closable(dialog);
  const hint = () => {
    byId("add-query").placeholder = questionOf(byId("add-name").value, byId("add-text").value) || say("add.query.hint");
  };
  byId("add-name").addEventListener("input", hint);
  byId("add-text").addEventListener("input", hint);
  byId("add").addEventListener("submit", (event) => {
    event.preventDefault();
    send(dialog, found);
  });
  byId("add").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("add").requestSubmit();
  });
  byId("open-add").addEventListener("click", open);
}

/** Open the window on an empty form. */
export function open() {
  byId("add").reset();
  fill(byId("add-problem"));
  byId("add-id").value = freshId();
  byId("add-query").placeholder = say("add.query.hint");
  byId("add-dialog").showModal();
  byId("add-name").focus();
}

async function send(dialog, found) {
  const [title, text, id] = [byId("add-name").value, byId("add-text").value, byId("add-id").value.trim()];
  const go = byId("add-go");
  fill(byId("add-problem"));
  go.disabled = true;
  go.textContent = say("add.busy");
  try {
    const document = { id, title: title.trim(), text, metadata: metadataOf(byId("add-metadata").value) };
    const began = performance.now();
    const stored = await call("/documents", { method: "POST", body: { documents: [document] } });
    const spent = performance.now() - began;
    const question = byId("add-query").value.trim() || questionOf(title, text);
    dialog.close();
    const rank = await found(question, id);
    tell(stored, document, spent, rank);
  } catch (problem) {
    const shown = problem instanceof ApiError ? trouble(problem) : notice("bad", problem.message, "");
    fill(byId("add-problem"), shown);
  } finally {
    go.disabled = false;
    go.textContent = say("add.go");
  }
}

function tell(stored, document, spent, rank) {
  const one = (stored.documents || [])[0] || {};
  const title = document.title || document.id;
  const version = String(one.version ?? "").slice(0, 8);
  const facts = { title, version, passages: number(one.passages ?? stored.passages ?? 0) };
  const done = stored.added ? "add.done" : stored.changed ? "add.changed" : "add.unchanged";
  const back = { type: "button", onclick: () => take(document.id, title) };
  const undo = stored.added ? node("button", back, say("add.undo")) : null;
  fill(
    byId("notices"),
    notice(
      "good",
      say(done, { ...facts, ms: milliseconds(spent) }),
      rank ? say("add.found", { rank }) : say("add.not_found"),
      undo ? node("div.buttons", {}, undo) : null,
    ),
  );
}

async function take(id, title) {
  try {
    await call(`/documents/${encodeURIComponent(id)}`, { method: "DELETE" });
    fill(byId("notices"), notice("good", say("add.undone", { title }), ""));
    dispatchEvent(new Event("suwen:changed"));
  } catch (problem) {
    fill(byId("notices"), trouble(problem));
  }
}
