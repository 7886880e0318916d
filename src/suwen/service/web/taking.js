// Taking hits elsewhere: a citation for the clipboard, a file of hits, and where a passage comes from.

import { key } from "./api.js";
import { node } from "./nodes.js";
import { language, say } from "./words.js";

const LINKS = ["url", "source_url", "link", "source"];
const PAGES = ["page", "pages", "page_number"];

/** The metadata fields that name a source are shown apart. */
export const SOURCE = new Set([...LINKS, ...PAGES]);

function found(metadata, names) {
  const name = names.find((one) => ["string", "number"].includes(typeof metadata?.[one]) && metadata[one] !== "");
  return name === undefined ? null : String(metadata[name]);
}

/** An address that may be followed, or null: never a script. */
export function webAddress(text) {
  try {
    const made = new URL(text);
    return ["http:", "https:"].includes(made.protocol) ? made : null;
  } catch {
    return null;
  }
}

/** Where a hit comes from: `{ name, href, page }`, each null where its metadata does not say. */
export function source(hit) {
  const page = found(hit.metadata, PAGES);
  const told = LINKS.map((name) => found(hit.metadata, [name])).filter(Boolean);
  const link = told.map(webAddress).find(Boolean) || null;
  // A PDF opens at the page.
  if (link && page && /\.pdf$/i.test(link.pathname) && !link.hash) link.hash = `page=${/\d+/.exec(page)?.[0] ?? 1}`;
  const name = told.find((one) => !webAddress(one)) ?? (link ? link.hostname : null);
  return { name, href: link ? link.href : null, page };
}

let originals = false;

/** Say whether the service has the files that books were read from. */
export function offerOriginals(there) {
  originals = there;
}

/** The address of the book that a hit is a page of, at that page; null where the service has none. */
export function original(hit) {
  if (!originals || typeof hit.metadata?.path !== "string") return null;
  const page = found(hit.metadata, PAGES);
  const at = page ? `#page=${/\d+/.exec(page)?.[0] ?? 1}` : "";
  return `/originals/${encodeURIComponent(hit.document_id)}${at}`;
}

// A link cannot carry a key: the file is fetched with it, and the new tab shows what came.
async function openWithKey(event, address) {
  if (!key()) return;
  event.preventDefault();
  const [path, at = ""] = address.split("#");
  const tab = window.open("", "_blank");
  const answer = await fetch(path, { headers: { Authorization: `Bearer ${key()}` } }).catch(() => null);
  if (!tab) return;
  if (answer?.ok) tab.location = `${URL.createObjectURL(await answer.blob())}${at ? `#${at}` : ""}`;
  else tab.document.body.textContent = say("hit.original.failed");
}

/** The source of a hit as it stands under it, or null. */
export function origin(hit) {
  const { name, href, page } = source(hit);
  const own = href ? null : original(hit);
  if (own) {
    const text = [hit.metadata.book || hit.metadata.path, page && say("hit.page", { page })].filter(Boolean).join(" · ");
    const act = { href: own, target: "_blank", rel: "noopener", title: say("hit.original"), onclick: (event) => openWithKey(event, own) };
    return node("a.source", act, text);
  }
  if (!name && !page) return null;
  const where = page ? say("hit.page", { page }) : "";
  const text = [name, where].filter(Boolean).join(" · ");
  if (!href) return node("span.source", {}, text);
  const act = { href, target: "_blank", rel: "noopener noreferrer", title: say("hit.source", { address: href }) };
  return node("a.source", act, text);
}

/** A hit as it is cited: title, source, page, document, place in it, index, day, address. */
export function citation(hit, index, when = new Date()) {
  const { name, href, page } = source(hit);
  const day = when.toISOString().slice(0, 10);
  const zh = language() === "zh";
  const document = say("cite.document", { id: hit.document_id, start: hit.start, end: hit.end });
  const parts = [hit.title, name, page && say("hit.page", { page }), document, say("cite.index", { index, day }), href];
  const told = parts.filter(Boolean).join(zh ? "．" : ". ");
  return zh ? `“${hit.text}”——${told}` : `“${hit.text}” — ${told}`;
}

/** Put a text on the clipboard; whether it went there. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Browsers give pages without https no clipboard, only this older way.
    const area = node("textarea", { value: text, readonly: "", "aria-hidden": "true", class: "hidden" });
    (document.querySelector("dialog[open]") || document.body).append(area);
    const before = document.activeElement;
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    before?.focus({ preventScroll: true });
    return done;
  }
}

// A table program would run what begins like a formula.
const cell = (value) => {
  const text = typeof value === "string" ? value : value === null || value === undefined ? "" : JSON.stringify(value);
  const safe = /^[=+\-@\t\r]/.test(text) && typeof value !== "number" ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

/** Rows of answers, one a hit. */
export function rows(answers) {
  return answers.flatMap((answer) => answer.hits.map((hit, at) => ({
    query: answer.query,
    mode: answer.mode,
    rank: at + 1,
    score: hit.score,
    id: hit.id,
    document_id: hit.document_id,
    title: hit.title,
    text: hit.text,
    start: hit.start,
    end: hit.end,
    metadata: hit.metadata,
  })));
}

/** Rows as a table for office programs: commas, and a mark that says it is UTF-8. */
export function csv(rows) {
  const fields = [...new Set(rows.flatMap((row) => Object.keys(row.metadata || {})))];
  const names = Object.keys(rows[0] || {}).filter((name) => name !== "metadata");
  const line = (row) => [...names.map((name) => row[name]), ...fields.map((field) => row.metadata?.[field])];
  const head = [...names, ...fields.map((field) => `metadata.${field}`)];
  return `\ufeff${[head, ...rows.map(line)].map((cells) => cells.map(cell).join(",")).join("\r\n")}\r\n`;
}

/** Give the browser a file to keep. */
export function download(name, kind, text) {
  const address = URL.createObjectURL(new Blob([text], { type: kind }));
  const link = node("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}
