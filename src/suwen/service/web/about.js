// The index page: how large it is, in which space, who encoded what, what waits, and a check of its recall.

import { fromAddress } from "./address.js";
import { call } from "./api.js";
import { byId, fill, node } from "./nodes.js";
import { trouble } from "./notices.js";
import { about, begin, help, keys, sizes, toggleTheme } from "./shell.js";
import { find, language, number, say } from "./words.js";

const EVERY = 5000;
let info = null;
let checked = null;
let timer = null;

/** Bytes as people read them. */
export function bytes(count) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  const power = count > 0 ? Math.min(Math.floor(Math.log2(count) / 10), units.length - 1) : 0;
  return `${number(count / 1024 ** power, power && count / 1024 ** power < 100 ? 1 : 0)} ${units[power]}`;
}

/** A length of time as people say it. */
export function duration(seconds) {
  const units = [["days", 86400], ["hours", 3600], ["minutes", 60]];
  const [unit, size] = units.find(([, length]) => seconds >= length) || ["seconds", 1];
  return say(unit, { count: number(seconds / size, seconds / size < 10 && size > 1 ? 1 : 0) });
}

function card(title, ...children) {
  return node("section.card", { "aria-label": say(title) }, node("h2", {}, say(title)), ...children);
}

function list(rows) {
  return node("dl.facts-list", {}, rows.filter(Boolean).map(([name, value, title]) =>
    node("div", {}, node("dt", {}, say(name)), node("dd", { title: title ?? null }, value))));
}

function contents({ index }) {
  const fields = index.fields || [];
  return card(
    "about.contents",
    node("div.figures", {}, figure(index.documents, "about.documents"), figure(index.passages, "about.passages")),
    list([
      ["about.deleted", number(index.deleted ?? 0)],
      ["about.truth", bytes(index.bytes_truth ?? 0), `${number(index.bytes_truth ?? 0)} B`],
      ["about.derived", bytes(index.bytes_derived ?? 0), `${number(index.bytes_derived ?? 0)} B`],
      ["about.fields", fields.length ? fields.map((field) => node("code", {}, field)) : say("about.fields.none")],
    ]),
  );
}

const figure = (count, label) => node("p.figure", {}, node("b", {}, number(count)), node("span", {}, say(label)));

function space({ space, pair }) {
  const tiers = (pair?.tiers || []).map((tier) => tier.name ?? tier);
  const told = (name) => (name === pair.default_tier ? say("tier.default", { name }) : name);
  const shown = tiers.map((name) => node("code", {}, told(name)));
  const document = find(`about.document.${pair?.document}`) ?? pair?.document;
  return card("about.space", list([
    ["about.pair", pair?.name ?? "–"],
    ["about.dimension", number(space?.dimension ?? 0)],
    ["about.tiers", shown],
    ["about.document", document ?? "–"],
    ["about.space.id", node("code.long", {}, space?.id ?? "–")],
  ]));
}

function encoders({ index }) {
  const counts = Object.entries(index.encoders || {}).sort((one, other) => other[1] - one[1]);
  const all = counts.reduce((sum, [, count]) => sum + count, 0);
  if (!all) return card("about.encoders", node("p.soft", {}, say("about.encoders.none")));
  const rows = counts.map(([name, count]) => {
    const bar = node("i.bar", { "aria-hidden": "true" });
    bar.style.setProperty("--part", String(count / all));
    const shown = name === "document" ? say("why.encoder.document") : name;
    return node("tr", {}, node("th", { scope: "row" }, shown), node("td.wide", {}, bar),
      node("td", {}, number(count)), node("td.soft", {}, `${number((100 * count) / all, 1)}%`));
  });
  return card("about.encoders", node("table.shares", {}, node("tbody", {}, rows)));
}

function freshness({ freshness }) {
  if (!freshness) return null;
  const waiting = freshness.waiting_documents ?? 0;
  return card(
    "about.freshness",
    list([
      ["about.fresh", number(freshness.fresh_passages ?? 0)],
      ["about.waiting", number(waiting)],
      waiting && freshness.oldest_seconds !== null ? ["about.oldest", duration(freshness.oldest_seconds ?? 0)] : null,
      ["about.worker", find(`about.worker.${freshness.worker}`) ?? String(freshness.worker)],
      freshness.leased ? ["about.leased", number(freshness.leased)] : null,
    ]),
    freshNote(freshness, waiting),
  );
}

function freshNote(freshness, waiting) {
  const fresh = freshness.fresh_passages ?? 0;
  if (!fresh && !waiting) return node("p.soft", {}, say("about.all_encoded"));
  return fresh && freshness.worker === "none" ? node("p.soft", {}, say("about.no_worker")) : null;
}

function service({ version, modes, limits }) {
  const rows = Object.entries(limits || {}).map(([name, value]) => {
    const label = find(`limit.${name}`) ?? name.replaceAll("_", " ");
    const shown = typeof value === "number" ? (/body|bytes/.test(name) ? bytes(value) : number(value)) : String(value);
    return node("div", {}, node("dt", {}, label), node("dd", {}, shown));
  });
  const ways = (modes || []).map((mode) => find(`mode.${mode}`) ?? mode).join(" · ");
  const facts = list([["about.version", version ?? "–"], ["about.modes", ways]]);
  facts.append(...rows);
  return card("about.service", facts);
}

function show() {
  byId("about-title").textContent = `${say("about.title")} · ${info.index.name}`;
  fill(byId("about"), contents(info), freshness(info), space(info), encoders(info), service(info));
  byId("about").removeAttribute("aria-busy");
  byId("recall").hidden = false;
  const time = new Intl.DateTimeFormat(language(), { timeStyle: "medium" }).format(new Date());
  byId("about-when").textContent = say("about.updated", { time });
  if (checked) showRecall();
}

async function refresh() {
  if (document.hidden) return;
  try {
    info = await call("/info");
    show();
  } catch (problem) {
    // Asked no further: a key that is refused would be asked for again and again.
    clearInterval(timer);
    fill(byId("notices"), trouble(problem, () => location.reload()));
  }
}

async function check(event) {
  event.preventDefault();
  const go = byId("recall-go");
  go.disabled = true;
  fill(byId("recall-answer"), node("p.soft", {}, say("recall.busy")));
  const began = performance.now();
  try {
    const body = { sample: Number(byId("recall-sample").value) || 100 };
    const found = await call("/info/recall", { method: "POST", body });
    checked = { ...found, seconds: (performance.now() - began) / 1000 };
    showRecall();
  } catch (problem) {
    fill(byId("recall-answer"), trouble(problem));
  } finally {
    go.disabled = false;
  }
}

function showRecall() {
  const share = `${number(100 * checked.recall, 1)}%`;
  const bar = node("i.bar.large", { "aria-hidden": "true" });
  bar.style.setProperty("--part", String(checked.recall));
  const over = { queries: number(checked.queries ?? checked.sample ?? 0), time: number(checked.seconds, 1) };
  const found = node("b", {}, say("recall.answer", { share, k: checked.k ?? 10 }));
  fill(byId("recall-answer"), bar, node("p.verdict", {}, found, node("span.soft", {}, say("recall.over", over))));
}

async function start() {
  begin(fromAddress().lang);
  byId("recall-form").addEventListener("submit", check);
  addEventListener("suwen:language", () => info && show());
  keys({ "/": () => location.assign("/"), "?": help, t: toggleTheme });
  try {
    info = await about();
    show();
    byId("status").textContent = say("about.ready", sizes(info));
    timer = setInterval(refresh, EVERY);
  } catch (problem) {
    if (problem.status === undefined) throw problem;
    fill(byId("notices"), trouble(problem, () => location.reload()));
  }
}

start();
