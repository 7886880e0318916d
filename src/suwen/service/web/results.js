// The answer to a search as it stands on the page: a list with its times, or three columns side by side.

import { facets } from "./facets.js";
import { brief, full } from "./hits.js";
import { languageOf, node } from "./nodes.js";
import { notice } from "./notices.js";
import { milliseconds, number, say } from "./words.js";

export const WAYS = ["dense", "lexical", "hybrid"];

/** Where the time went: encode beside search, in words and as a bar. */
export function latency(timings, trip) {
  const { encode = 0, search = 0, total = 0 } = timings || {};
  const told = { encode: milliseconds(encode), search: milliseconds(search), total: milliseconds(total) };
  const bar = node("span.split", { "aria-hidden": "true" }, node("i.encode"), node("i.search"), node("i.rest"));
  const parts = [encode, search, Math.max(0, total - encode - search)];
  parts.forEach((part, at) => bar.children[at].style.setProperty("--part", String(part)));
  const piece = (name, unit = null) =>
    node(`span.time.${name}`, {}, say(`latency.${name}`), " ", node("b", {}, told[name]), unit && ` ${unit}`);
  const label = say("latency", { ...told, trip: milliseconds(trip) });
  return node("div.latency", { role: "img", "aria-label": label, title: label }, bar, piece("encode"), piece("search"),
    piece("total", say("ms")));
}

/** What stands in place of the hits while they are looked for: the question, and that something is happening. */
export function pending(query) {
  const bars = [1, 2, 3].map(() => node("li.ghost", { "aria-hidden": "true" }));
  const told = node("p", {}, node("i.spinner", { "aria-hidden": "true" }), say("results.pending", { query }));
  return [node("div.summary", {}, told), node("ol.hits", { "aria-hidden": "true" }, bars)];
}

function asked(query, counted) {
  return node("p.asked", {}, node("b", { lang: languageOf(query) }, say("results.for", { query })), " ", counted);
}

function exporting(actions) {
  const one = (kind) => node("button.link", { type: "button", onclick: () => actions.onexport(kind),
    "aria-label": say("export.as", { kind: kind.toUpperCase() }) }, kind.toUpperCase());
  return node("p.export", {}, say("export"), " ", one("csv"), " ", one("json"));
}

/** The list of one way of searching, with what precedes and follows it. */
export function list(answer, state, size, actions) {
  const hits = answer.hits.slice(0, size);
  const from = (state.page - 1) * size;
  const options = { mode: answer.mode, ...actions };
  const counted = hits.length ? say("results.count", { from: from + 1, to: from + hits.length }) : "";
  return [
    node("div.summary", {}, asked(state.q, counted), hits.length ? exporting(actions) : null,
      latency(answer.timings, answer.trip)),
    ...warnings(answer, state, hits.length),
    node("div.beside", {},
      node("ol.hits", { start: from + 1 }, hits.map((hit, at) => full(hit, from + at + 1, options))),
      facets(answer, state, actions)),
    pager(state.page, answer.hits.length > size, actions),
  ];
}

const notes = (answer) => (answer.notes || []).map((text) => notice("calm", say("note"), inOurWords(text)));

function warnings(answer, state, shown) {
  const found = notes(answer);
  if (answer.also_searched?.length) found.push(notice("calm", say("also"), answer.also_searched.join(" · ")));
  if (!shown) {
    const why = state.page > 1 ? "results.none.more" : state.filters.length ? "results.none.filters" : "results.none";
    found.push(notice("calm", say(why), ""));
  } else if (answer.relevant === false) {
    found.push(unanswered(answer.evidence));
  }
  return found;
}

// The library's notes are in English.
function inOurWords(text) {
  const cut = /^the query was cut to its first (\d+) characters$/.exec(text);
  if (cut) return say("note.cut", { count: number(Number(cut[1])) });
  if (text.startsWith("the query names a thing of another field")) return say("note.elsewhere");
  const written = /^searched with (\d+) hypothetical documents?$/.exec(text);
  if (written) return say("note.hyde", { count: number(Number(written[1])) });
  const late = /^searched with the plain query: none was written within (\d+) ms$/.exec(text);
  if (late) return say("note.hyde.late", { budget: number(Number(late[1])) });
  const plain = /^searched with the plain query: (.*)$/s.exec(text);
  return plain ? say("note.hyde.plain", { why: plain[1] }) : text;
}

function unanswered(evidence) {
  const heights = Object.entries(evidence || {}).map(([leg, height]) => `${say(`mode.${leg}`)} ${number(height, 2)}`);
  const told = heights.length ? node("p.facts", {}, say("relevant.evidence", { heights: heights.join(" · ") })) : null;
  return notice("warn", say("relevant.title"), say("relevant.text"), told);
}

function pager(page, more, actions) {
  if (page === 1 && !more) return null;
  const button = (name, to, shown) =>
    node("button", { type: "button", id: `page-${name}`, disabled: !shown, onclick: () => actions.onpage(to) },
      say(`pager.${name}`));
  return node("nav.pager", { "aria-label": say("pager") }, button("previous", page - 1, page > 1),
    node("span", {}, say("results.page", { page: number(page) })), button("next", page + 1, more));
}

/** Dense, lexical and hybrid beside one another; on a narrow screen one of them, with a switch. */
export function columns(answers, size, actions) {
  const ranks = Object.fromEntries(
    WAYS.map((way) => [way, new Map(answers[way].hits.slice(0, size).map((hit, at) => [hit.id, at + 1]))]),
  );
  const board = node("div.columns", { "data-shown": actions.shown || "hybrid" });
  board.append(...WAYS.map((way) => column(way, answers[way], ranks, size, actions)));
  const head = node("div.summary", {}, asked(actions.query, ""), exporting(actions));
  return [head, ...notes(answers.hybrid), switcher(board, actions), board];
}

function column(way, answer, ranks, size, actions) {
  const others = WAYS.filter((other) => other !== way);
  const hits = answer.hits.slice(0, size).map((hit, at) => {
    const places = others.map((other) => [other, ranks[other].get(hit.id) ?? null]);
    return brief(hit, at + 1, { ...actions, mode: way, places, onwhy: (one, make) => actions.onwhy(one, make, way) });
  });
  return node(
    "section.column",
    { "data-way": way, "aria-label": say(`mode.${way}`) },
    node("div.column-head", {}, node("h2", {}, node("i", { class: `leg ${way}` }), say(`mode.${way}`)),
      node("p.soft", {}, say(`mode.${way}.what`)), latency(answer.timings, answer.trip)),
    answer.relevant === false && hits.length ? notice("warn", say("relevant.title"), "") : null,
    hits.length ? node("ol.hits", {}, hits) : notice("calm", say("results.none"), ""),
  );
}

function switcher(board, actions) {
  const buttons = WAYS.map((way) =>
    node("button", { type: "button", "data-way": way, "aria-pressed": String(way === board.dataset.shown) },
      say(`mode.${way}`)),
  );
  for (const button of buttons) {
    button.addEventListener("click", () => {
      board.dataset.shown = button.dataset.way;
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      actions.onshow?.(button.dataset.way);
    });
  }
  return node("div.switcher", { role: "group", "aria-label": say("compare.show") }, buttons);
}

/** Mark the passages of the comparison that are the one looked at. */
export function markTwins(board, passage) {
  for (const hit of board.querySelectorAll(".hit")) {
    hit.classList.toggle("twin", passage !== null && hit.dataset.passage === passage);
  }
}
