// Files into the index: chosen or dropped, sent as an import each, watched until it ends, cancelled on request.

import { ApiError, call } from "./api.js";
import { byId, fill, languageOf, node } from "./nodes.js";
import { notice, trouble } from "./notices.js";
import { number, say } from "./words.js";

const EVERY = 700;
const OVER = ["done", "failed", "cancelled"];
// Lines of JSON are an import of their own; everything else is known by its name.
const LINES = /\.(jsonl|ndjson)$/i;
// What passes by itself: the service is busy, restarts, or the network is away for a moment.
const PASSING = ["unreachable", "overloaded", "loading", "stopping", "timeout"];

const items = [];
let most = () => Infinity;
let sending = Promise.resolve();
let watching = false;

/** Make the window take files. `limit()` gives the bytes of the longest import. */
export function begin(limit) {
  most = limit;
  const chosen = byId("files-chosen");
  chosen.addEventListener("change", () => {
    take([...chosen.files]);
    chosen.value = "";
  });
  const dialog = byId("add-dialog");
  const over = (is) => byId("files-drop").classList.toggle("over", is);
  // Anywhere on the window: a file that misses the box would otherwise open in place of the page.
  dialog.addEventListener("dragover", (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    over(true);
  });
  dialog.addEventListener("dragleave", (event) => {
    if (!dialog.contains(event.relatedTarget)) over(false);
  });
  dialog.addEventListener("drop", (event) => {
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    over(false);
    const folders = [...event.dataTransfer.items].map((one) => one.webkitGetAsEntry?.()?.isDirectory);
    take([...event.dataTransfer.files], folders);
  });
  addEventListener("suwen:language", () => items.forEach(draw));
}

function take(files, folders = []) {
  files.forEach((file, at) => {
    const item = { file, name: file.name, job: null, state: "sending", problem: null, off: new AbortController() };
    item.parts = rowOf(item);
    items.push(item);
    byId("files").append(item.parts.row);
    byId("files").hidden = false;
    if (folders[at]) fail(item, { folder: true });
    else if (file.size > most()) fail(item, new ApiError(413, "too_large", ""));
    else sending = sending.then(() => send(item));
    draw(item);
  });
}

const pause = (time) => new Promise((go) => setTimeout(go, time));

// One after the other: a slow line is not shared, and the service keeps few places for imports.
async function send(item) {
  while (!OVER.includes(item.state)) {
    const lines = LINES.test(item.name);
    const body = item.file.slice(0, item.file.size, lines ? "application/x-ndjson" : "application/octet-stream");
    const query = lines ? "duplicates=last" : new URLSearchParams({ name: item.name });
    try {
      heard(item, await call(`/imports?${query}`, { method: "POST", body, signal: item.off.signal }));
      watch();
      return;
    } catch (problem) {
      if (problem.name === "AbortError") change(item, "cancelled");
      else if (problem.code !== "overloaded") fail(item, problem);
      else await pause(1000 * (problem.retryAfter || 2));
    }
  }
}

async function watch() {
  if (watching) return;
  watching = true;
  for (let open = unfinished(); open.length; open = unfinished()) {
    await pause(EVERY);
    try {
      const known = new Map((await call("/imports")).imports.map((job) => [job.id, job]));
      for (const item of unfinished()) {
        if (known.has(item.job.id)) heard(item, known.get(item.job.id));
        else if (open.includes(item)) fail(item, new ApiError(404, "unknown_import", ""));
      }
    } catch (problem) {
      if (!PASSING.includes(problem.code)) unfinished().forEach((item) => fail(item, problem));
    }
  }
  watching = false;
}

const unfinished = () => items.filter((item) => item.job && !OVER.includes(item.state));

function heard(item, job) {
  item.job = job;
  if (job.error) item.problem = new ApiError(422, job.error.code, job.error.message);
  change(item, job.state);
}

function fail(item, problem) {
  item.problem = problem;
  change(item, "failed");
}

function change(item, state) {
  const news = item.state !== state;
  item.state = state;
  draw(item);
  if (!news) return;
  byId("files-status").textContent = `${item.name}: ${told(item)}`;
  if (OVER.includes(state) && item.job?.read) dispatchEvent(new Event("suwen:changed"));
}

async function cancel(item) {
  item.off.abort();
  if (!item.job) return change(item, "cancelled");
  try {
    heard(item, await call(`/imports/${encodeURIComponent(item.job.id)}`, { method: "DELETE" }));
  } catch (problem) {
    fail(item, problem);
  }
}

/** How a file stands, in a sentence. */
function told({ state, job }) {
  const words = {
    sending: () => say("files.sending"),
    waiting: () => say("files.waiting"),
    checking: () => (job.pages ? say("files.page", counts(job)) : say("files.checking")),
    storing: () => say("files.storing", counts(job)),
    done: () => say("files.done", counts(job)),
    failed: () => say("files.failed"),
    cancelled: () => (job?.read ? say("files.cancelled", counts(job)) : say("files.stopped")),
  };
  return words[state]();
}

const counts = (job) =>
  Object.fromEntries(["page", "pages", "read", "documents", "added", "changed", "unchanged"]
    .map((name) => [name, number(job[name] ?? 0)]));

// Made once and changed in place: what is replaced under a finger is not clicked.
function rowOf(item) {
  const { name } = item;
  const [words, bar] = [node("p.soft"), node("progress", { "aria-label": name })];
  const [stop, more] = [node("button", { type: "button", onclick: () => cancel(item) }), node("div")];
  const row = node("li", {}, node("div.file", {}, node("div", {}, node("b", { lang: languageOf(name) }, name), words, bar), stop), more);
  return { row, words, bar, stop, more };
}

function draw(item) {
  const { name, state, job, problem, parts: { words, bar, stop, more } } = item;
  words.textContent = told(item);
  const [done, all] = state === "storing" ? [job.read, job.documents] : job?.pages ? [job.page, job.pages] : [0, 0];
  if (all) Object.assign(bar, { max: all, value: done });
  else bar.removeAttribute("value");
  if (OVER.includes(state) && stop.contains(document.activeElement)) byId("files-chosen").focus();
  bar.hidden = stop.hidden = OVER.includes(state);
  stop.textContent = say("cancel");
  stop.setAttribute("aria-label", say("files.cancel", { name }));
  const left = job?.left_out ?? [];
  if (OVER.includes(state)) fill(more, left.length ? leftOut(left) : null, problem ? said(problem, name) : null);
}

function leftOut(left) {
  const words = say("files.left", { count: number(left.length) });
  const list = node("ul", { tabindex: 0, "aria-label": words }, left.map(reason));
  return node("details.left", {}, node("summary", {}, words), list);
}

function said(problem, name) {
  if (problem.folder) return notice("bad", say("files.folder", { name }), "");
  return problem.code === "invalid_request" ? trouble(problem, null, "files.bad") : trouble(problem);
}

const reason = ({ page, why }) =>
  node("li", {}, page ? `${say("hit.page", { page })}: ` : "", node("span", { lang: languageOf(why) }, why));
