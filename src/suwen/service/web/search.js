// The search page: takes the person's question to the service and shows the answer. One search at a time.

import * as adding from "./adding.js";
import * as files from "./files.js";
import { fromAddress, keepAddress } from "./address.js";
import { ApiError, call } from "./api.js";
import { MOST_FIELDS } from "./facets.js";
import { toWhere } from "./filters.js";
import { byId, fill, languageOf, node } from "./nodes.js";
import { trouble } from "./notices.js";
import * as past from "./past.js";
import * as picking from "./picking.js";
import * as reading from "./reading.js";
import { WAYS, columns, list, markTwins, pending } from "./results.js";
import { about, begin, help, keys, mayWrite, sizes, toggleTheme } from "./shell.js";
import { citation, copy, csv, download, offerOriginals, rows } from "./taking.js";
import { language, milliseconds, number, say } from "./words.js";

const SIZE = 10;
const EXPORTED = 100;
const results = byId("results");
let state = fromAddress();
let info = null;
let answer = null;
let added = null;
let shownColumn = "hybrid";
let running = null;
let examples = [];
// Why the hits of a page are there, by mode: asked for once, when somebody wants to know of one.
let reasons = new Map();

async function ask(mode, { signal, ...more } = {}) {
  const compare = state.mode === "compare";
  const began = performance.now();
  const body = {
    query: state.q,
    // One more than is shown tells whether there is a next page.
    k: compare ? SIZE : SIZE + 1,
    mode,
    tier: mode === "lexical" ? null : state.tier || null,
    where: toWhere(state.filters),
    sort: state.sort || null,
    facets: compare ? [] : picking.known().slice(0, MOST_FIELDS),
    offset: compare ? 0 : (state.page - 1) * SIZE,
    per_document: state.perDocument,
    // A server without a model for it would refuse; words alone have no use for it.
    hyde: state.hyde && info?.hyde && mode !== "lexical" ? {} : null,
    highlights: true,
    ...more,
  };
  const found = await call("/search", { method: "POST", body, signal });
  return { ...found, trip: performance.now() - began };
}

async function run() {
  running?.abort();
  const mine = (running = new AbortController());
  picking.show(state, removeFilter);
  document.title = state.q ? `${state.q} · 素问 suwen` : "素问 suwen";
  if (!state.q) return home();
  wait();
  past.remember(state.q, location.hash);
  try {
    const found = await Promise.all(ways().map((way) => ask(way, { signal: mine.signal })));
    if (running !== mine) return;
    answer = state.mode === "compare" ? Object.fromEntries(WAYS.map((way, at) => [way, found[at]])) : found[0];
    show();
  } catch (problem) {
    if (problem.name !== "AbortError" && running === mine) fail(problem);
  } finally {
    if (running === mine) results.removeAttribute("aria-busy");
  }
}

const ways = () => (state.mode === "compare" ? WAYS : [state.mode]);

// The hits of the last question are gone before the next is asked: nobody may take them for its answer.
function wait() {
  answer = null;
  reasons = new Map();
  byId("home").hidden = true;
  results.hidden = false;
  results.setAttribute("aria-busy", "true");
  fill(results, ...pending(state.q));
  byId("status").textContent = say("results.pending", { query: state.q });
}

/** Why one hit is there, made by `explained` of the hit with its explanation. */
async function reason(mode, hit, explained) {
  if (!reasons.has(mode)) reasons.set(mode, ask(mode, { highlights: false, explain: true }));
  try {
    const found = (await reasons.get(mode)).hits.find((one) => one.id === hit.id);
    return found ? explained(found) : node("p.soft", {}, say("why.gone"));
  } catch (problem) {
    reasons.delete(mode);
    if (!(problem instanceof ApiError)) throw problem;
    return trouble(problem);
  }
}

async function cite(hit) {
  const done = await copy(citation(hit, info?.index.name ?? ""));
  byId("status").textContent = say(done ? "cite.done" : "cite.failed");
  fill(byId("toast"), say(done ? "cite.done" : "cite.failed"));
  setTimeout(() => fill(byId("toast")), 2500);
}

async function exportHits(kind) {
  const most = Math.min(EXPORTED, info?.limits?.most_hits ?? EXPORTED);
  try {
    const found = rows(await Promise.all(ways().map((way) => ask(way, { k: most, offset: 0, highlights: false }))));
    const name = `${state.q.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 40) || "hits"}.${kind}`;
    if (kind === "csv") download(name, "text/csv;charset=utf-8", csv(found));
    else download(name, "application/json", JSON.stringify(found, null, 1));
    byId("status").textContent = say("export.done", { count: number(found.length), name });
  } catch (problem) {
    if (!(problem instanceof ApiError)) throw problem;
    fill(byId("notices"), trouble(problem));
  }
}

function fail(problem) {
  answer = null;
  if (problem.status === undefined) throw problem;
  fill(results, trouble(problem, run));
  byId("status").textContent = say("error.title");
}

function show() {
  const actions = { added, onfilter: addFilter, onopen: reading.open, onpage: turn, shown: shownColumn, query: state.q,
    onunfilter: removeFilter, onsort: (sort) => go({ ...picking.taken(state), sort }), fields: picking.known(),
    oncite: cite, onexport: exportHits, onwhy: (hit, make, mode = state.mode) => reason(mode, hit, make) };
  if (state.mode === "compare") {
    fill(results, ...columns(answer, SIZE, { ...actions, onshow: (way) => (shownColumn = way) }));
    picking.learn(WAYS.flatMap((way) => answer[way].hits));
  } else {
    fill(results, ...list(answer, state, SIZE, actions));
    picking.learn(answer.hits);
  }
  // The first hit can be reached by Tab; from there the arrows lead on.
  results.querySelector(".hit")?.setAttribute("tabindex", "0");
  byId("status").textContent = spoken();
}

function spoken() {
  if (state.mode === "compare") {
    const counts = Object.fromEntries(WAYS.map((way) => [way, number(answer[way].hits.length)]));
    return say("results.spoken.compare", { query: state.q, ...counts });
  }
  const hits = answer.hits.slice(0, SIZE);
  if (!hits.length) return say("results.spoken.none", { query: state.q });
  const warning = answer.relevant === false ? `${say("relevant.title")}. ` : "";
  const { encode = 0, search = 0 } = answer.timings || {};
  const told = { query: state.q, count: hits.length, first: hits[0].title || hits[0].document_id };
  return warning + say("results.spoken", { ...told, encode: milliseconds(encode), search: milliseconds(search) });
}

function home() {
  answer = null;
  results.hidden = true;
  fill(results);
  byId("home").hidden = false;
  byId("status").textContent = "";
  const lead = info?.index.documents ? "home.lead" : "home.lead.empty";
  byId("home-lead").textContent = info ? say(lead, sizes(info)) : "";
  const parts = say("home.hint").split(/(\{search\}|\{help\})/);
  const key = { "{search}": "/", "{help}": "?" };
  fill(byId("home-hint"), parts.map((part) => (key[part] ? node("kbd", {}, key[part]) : part)));
  for (const tag of ["zh", "en"]) {
    const one = (text) => node("li", {}, node("button.example", { type: "button", onclick: () => search(text) }, text));
    const texts = examples.filter((text) => languageOf(text) === tag);
    byId(`examples-${tag}`).parentElement.hidden = !texts.length;
    fill(byId(`examples-${tag}`), texts.map(one));
  }
  showPast();
}

function showPast() {
  const list = past.entries();
  byId("past-keep").checked = past.kept();
  byId("past-clear").hidden = !list.length;
  const one = ({ q, address }) => node("li", {}, node("a", { href: address, lang: languageOf(q) }, q));
  fill(byId("past"), list.map(one));
}

function go(next) {
  state = next;
  keepAddress(state);
  return run();
}

function search(question) {
  fill(byId("notices"));
  byId("q").value = question;
  return go(picking.taken(state));
}

function addFilter(clause) {
  const filters = state.filters.includes(clause) ? state.filters : [...state.filters, clause];
  go({ ...picking.taken(state), filters });
}

function removeFilter(clause) {
  go({ ...picking.taken(state), filters: state.filters.filter((one) => one !== clause) });
  (byId("chips").querySelector("button") || byId("open-filters")).focus();
}

async function turn(page) {
  await go({ ...state, page });
  scrollTo({ top: 0 });
  results.querySelector(".hit")?.focus({ preventScroll: true });
}

async function findAdded(question, id) {
  added = id;
  // The filters of before could hide it; the mode stays as it was.
  state = { ...picking.taken(state), filters: [] };
  await search(question);
  const hit = [...results.querySelectorAll(".hit")].find((one) => one.dataset.document === id);
  hit?.focus();
  hit?.scrollIntoView({ block: "center" });
  about().then((told) => (info = told), () => null);
  return hit ? Number(hit.querySelector(".rank").textContent) : null;
}

// Between hits: down and up a list, and across the columns of the comparison.
const visible = (elements) => [...elements].filter((one) => one.checkVisibility());
const listOf = (hit) => hit?.closest(".hits") || visible(results.querySelectorAll(".hits"))[0] || results;
const hitsOf = (hit) => visible(listOf(hit).querySelectorAll(".hit"));
const current = () => document.activeElement?.closest?.(".hit") || null;

function step(by) {
  const hit = current();
  const hits = hitsOf(hit);
  if (!hits.length) return false;
  const at = hits.indexOf(hit);
  if (by < 0 && at === 0) return byId("q").focus();
  return look(hits[hit ? Math.min(Math.max(at + by, 0), hits.length - 1) : 0]);
}

function across(by) {
  const hit = current();
  const shown = visible(results.querySelectorAll(".column"));
  if (!hit || shown.length < 2) return false;
  const next = shown[shown.indexOf(hit.closest(".column")) + by];
  const hits = next && [...next.querySelectorAll(".hit")];
  return hits?.length ? look(hits[Math.min(hitsOf(hit).indexOf(hit), hits.length - 1)]) : false;
}

function look(hit) {
  hit.focus({ preventScroll: true });
  hit.scrollIntoView({ block: "nearest" });
  return true;
}

function explain(event) {
  const why = event.target.matches?.(".hit") && event.target.querySelector(".why");
  if (!why) return false;
  why.open = !why.open;
  return true;
}

function choose(mode) {
  for (const radio of document.getElementsByName("mode")) radio.checked = radio.value === mode;
  go(picking.taken(state));
}

const press = (id) => () => (byId(id) && !byId(id).disabled && !byId(id).hidden ? byId(id).click() : false);
const arrows = (act) => (event) => (event.target.matches?.("input, select, summary, button") ? false : act());

function bindKeys() {
  const down = () => step(1);
  keys({
    "/": () => byId("q").select() ?? byId("q").focus(),
    "?": help,
    j: down,
    k: () => step(-1),
    ArrowDown: arrows(down),
    ArrowUp: arrows(() => (current() ? step(-1) : false)),
    h: () => across(-1),
    l: () => across(1),
    ArrowLeft: arrows(() => across(-1)),
    ArrowRight: arrows(() => across(1)),
    Enter: explain,
    n: press("page-next"),
    p: press("page-previous"),
    o: () => (current() ? void reading.open(current().dataset.document) : false),
    1: () => choose("hybrid"),
    2: () => choose("dense"),
    3: () => choose("lexical"),
    4: () => choose("compare"),
    m: () => byId("tier").focus(),
    f: () => picking.toggleFilters(),
    a: press("open-add"),
    t: toggleTheme,
    Escape: () => (byId("filters").hidden ? current()?.blur() : picking.toggleFilters(false)),
    "typing:Escape": (event) => (event.target.closest("#filters") ? picking.toggleFilters(false) : event.target.blur()),
    "typing:ArrowDown": (event) => (event.target === byId("q") ? step(1) : false),
  });
}

function listen() {
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    search(byId("q").value.trim());
  });
  byId("search").addEventListener("change", (event) => {
    if (event.target.matches("[name=mode], #tier, #per-document, #hyde") && state.q) go(picking.taken(state));
    else if (event.target.matches("[name=mode]")) picking.show(picking.taken(state), removeFilter);
  });
  addEventListener("popstate", () => {
    state = { ...fromAddress(), lang: state.lang };
    byId("q").value = state.q;
    run();
  });
  addEventListener("suwen:changed", run);
  byId("past-keep").addEventListener("change", () => {
    past.keep(byId("past-keep").checked);
    showPast();
  });
  byId("past-clear").addEventListener("click", () => {
    past.clear();
    showPast();
    byId("past-keep").focus();
    byId("status").textContent = say("past.cleared");
  });
  addEventListener("suwen:language", () => {
    state = { ...state, lang: language() };
    keepAddress(state, true);
    picking.show(state, removeFilter);
    if (answer) show();
    else if (!state.q) home();
  });
  const twin = (event) => markTwins(results, event.target.closest?.(".column .hit")?.dataset.passage ?? null);
  results.addEventListener("focusin", twin);
  results.addEventListener("mouseover", twin);
  results.addEventListener("mouseleave", () => markTwins(results, null));
}

async function start() {
  begin(state.lang);
  picking.begin(addFilter);
  adding.begin(findAdded);
  files.begin(() => info?.limits?.import_bytes ?? Infinity);
  reading.begin(() => Boolean(info) && !info.read_only && mayWrite(info));
  listen();
  bindKeys();
  keepAddress(state, true);
  picking.show(state, removeFilter);
  byId("q").value = state.q;
  // A phone's keyboard would cover half of the page.
  if (!state.q && !matchMedia("(pointer: coarse)").matches) byId("q").focus();
  if (state.q) wait();
  else home();
  try {
    info = await about();
    offerOriginals(Boolean(info.originals));
    picking.offer(info);
    byId("open-add").hidden = info.read_only || !mayWrite(info);
    // Nobody waits for examples, and a page without them is one too.
    const drawn = info.index.documents ? call("/examples").then((told) => told.examples, () => []) : [];
    await run();
    examples = await drawn;
    if (!state.q) home();
    byId("home").dataset.ready = "yes";
  } catch (problem) {
    if (problem.status === undefined) throw problem;
    results.hidden = true;
    fill(byId("notices"), trouble(problem, () => location.reload()));
  }
}

start();
