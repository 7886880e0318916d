// One hit on the page: its place, title, marked text, metadata, score, state, and why it is there.

import { condition } from "./filters.js";
import { marked, markedTitle } from "./marks.js";
import { fill, languageOf, node } from "./nodes.js";
import { SOURCE, origin as sourceOf } from "./taking.js";
import { confidence, find, number, say } from "./words.js";

const LEGS = ["dense", "lexical"];

/** How a score is written: cosines and fused scores lie near 1, BM25 does not. */
export const score = (value, mode) => number(value, mode === "lexical" ? 2 : 3);

/** A hit as an item of the list. `options`: mode, added (the id just added), onfilter, onopen, onwhy, oncite. */
export function full(hit, rank, options) {
  const heading = `hit-${rank}`;
  const title = hit.title || hit.document_id;
  const article = node(
    "article.hit",
    { tabindex: "-1", "aria-labelledby": heading, "data-document": hit.document_id, "data-passage": hit.id },
    node("span.rank", { "aria-hidden": "true" }, String(rank)),
    node(
      "div.body",
      {},
      node(
        "header",
        {},
        node("h2", { id: heading, lang: languageOf(title) }, titled(hit)),
        hit.document_id === options.added ? node("span.badge.new", {}, say("hit.added")) : null,
        node(
          "span.score",
          { title: `${say(`hit.score.${options.mode}`)} ${score(hit.score, options.mode)}` },
          node("span.unit", {}, say("hit.confidence")),
          node("b", {}, confidence(hit.confidence)),
        ),
      ),
      node("p.text", { lang: languageOf(hit.text) }, marked(hit.text, hit.highlights)),
      hit.same?.length ? node("p.soft", {}, say("hit.same", { count: number(hit.same.length) })) : null,
      facts(hit, options),
      why(hit, options),
    ),
  );
  return node("li", {}, article);
}

const titled = (hit) => (hit.title ? markedTitle(hit.title, hit.title_terms) : hit.document_id);

// Of Latin letters it takes twice as many for the same lines.
const briefly = (text) => (languageOf(text) === "zh" ? 110 : 240);

/** A hit in a column of the comparison: shorter, with its places in the other columns. */
export function brief(hit, rank, options) {
  const heading = `hit-${options.mode}-${rank}`;
  const title = hit.title || hit.document_id;
  const elsewhere = options.places.map(([mode, place]) =>
    node(
      place ? "span.place" : "span.place.absent",
      {},
      say(place ? "hit.in" : "hit.absent", { mode: say(`mode.${mode}`), rank: place }),
    ),
  );
  const article = node(
    "article.hit.brief",
    { tabindex: "-1", "aria-labelledby": heading, "data-document": hit.document_id, "data-passage": hit.id },
    node("span.rank", { "aria-hidden": "true" }, String(rank)),
    node(
      "div.body",
      {},
      node(
        "header",
        {},
        node("h3", { id: heading, lang: languageOf(title) }, titled(hit)),
        hit.document_id === options.added ? node("span.badge.new", {}, say("hit.added")) : null,
        node("span.score", {}, node("b", {}, confidence(hit.confidence))),
      ),
      node("p.text", { lang: languageOf(hit.text) }, marked(hit.text, hit.highlights, briefly(hit.text))),
      node("p.places", {}, state(hit), ...elsewhere),
      why(hit, options),
    ),
  );
  return node("li", {}, article);
}

function facts(hit, options) {
  const others = Object.entries(hit.metadata || {}).filter(([field]) => !SOURCE.has(field) || !sourceOf(hit));
  const metadata = others.flatMap(([field, value]) => [value].flat().map((one) => meta(field, one, options)));
  const cite = { type: "button", onclick: () => options.oncite(hit), "aria-label": `${say("hit.cite")} ${hit.id}` };
  const open = { type: "button", title: say("hit.document"), onclick: () => options.onopen(hit.document_id) };
  return node(
    "div.facts",
    {},
    state(hit),
    node("button.link.id", { ...open, "aria-label": `${say("hit.document")} ${hit.document_id}` }, hit.document_id),
    sourceOf(hit),
    node("button.link.cite", cite, say("hit.cite")),
    metadata.length ? node("ul.meta", {}, metadata) : null,
  );
}

function meta(field, value, options) {
  const clause = condition(field, "=", String(value));
  const parts = [node("span.name", {}, field), node("span.value", { lang: languageOf(String(value)) }, String(value))];
  const scalar = ["string", "number", "boolean"].includes(typeof value) && value !== "";
  if (!scalar) return node("li", {}, node("span", {}, parts));
  const act = { type: "button", title: say("filter.by", { clause }), onclick: () => options.onfilter(clause) };
  return node("li", {}, node("button.link", act, parts));
}

/** Whether the document encoder has seen the passage yet. */
export function state(hit) {
  if (!hit.state) return null;
  const who = hit.encoder || "";
  const by = who === "document" ? say("hit.encoded.what") : say("hit.encoded.by", { encoder: who });
  const what = hit.state === "fresh" ? say("hit.fresh.what", { encoder: who }) : by;
  return node(`span.badge.${hit.state === "fresh" ? "fresh" : "encoded"}`, { title: what }, say(`hit.${hit.state}`));
}

// Explained when it is asked for: for ten hits that nobody asks about it would cost a fifth of the search.
function why(hit, options) {
  const told = node("div", { role: "status" });
  const box = node("details.why", {}, node("summary", {}, say("hit.why")), told);
  box.addEventListener("toggle", async () => {
    if (!box.open || told.childNodes.length) return;
    fill(told, node("p.soft", {}, say("why.loading")));
    fill(told, await options.onwhy(hit, explained));
  });
  return box;
}

function explained(hit) {
  const told = hit.explanation;
  const alone = told.mode !== "hybrid";
  const rows = LEGS.filter((leg) => !alone || told[leg]).map((leg) => row(leg, told, alone));
  const heads = ["why.leg", "why.rank", "why.raw", ...(alone ? [] : ["why.value", "why.weight", "why.share"])];
  return [
    node(
      "table",
      {},
      node("thead", {}, node("tr", {}, heads.map((head) => node("th", { scope: "col" }, say(head))))),
      node("tbody", {}, rows),
    ),
    node("p.soft", {}, alone ? say("why.alone") : find(`why.formula.${told.fusion}`)),
    told.moved.map((reason) => node("p.soft", {}, find(`why.moved.${reason}`))),
    origin(hit, told),
  ];
}

function row(leg, told, alone) {
  const found = told[leg];
  const head = node("th", { scope: "row" }, node("i", { class: `leg ${leg}` }), say(`mode.${leg}`));
  if (!found) return node("tr.absent", {}, head, node("td", { colspan: alone ? "2" : "5" }, say("why.missing")));
  const cells = [number(found.rank), score(found.score, leg)];
  if (alone) return node("tr", {}, head, cells.map((cell) => node("td", {}, cell)));
  const weight = told.weights?.[leg] ?? 0;
  const whole = told.fusion === "scores" ? Object.values(told.weights).reduce((sum, one) => sum + one, 0) || 1 : 1;
  const share = (weight / whole) * found.value;
  const digits = told.fusion === "scores" ? 3 : 4;
  const bar = node("i", { class: `bar ${leg}`, "aria-hidden": "true" });
  const full = told.fusion === "scores" ? 1 : 1 / 61;
  bar.style.setProperty("--part", String(Math.min(1, Math.max(0, found.value / full))));
  cells.push(number(found.value, digits), number(weight, 1));
  const last = node("td.share", {}, bar, number(share, digits));
  return node("tr", {}, head, cells.map((cell) => node("td", {}, cell)), last);
}

function origin(hit, told) {
  const by = told.encoder === "document" ? say("why.encoder.document") : told.encoder;
  const where = say("why.characters", { start: hit.start, end: hit.end });
  const list = [
    told.tier && [say("why.tier"), told.tier],
    [say("why.encoder"), by],
    [say("why.passage"), `${hit.id} · ${where}`],
    [say("why.space"), told.space],
  ];
  return node(
    "dl.origin",
    {},
    list.filter(Boolean).map(([name, value]) => node("div", {}, node("dt", {}, name), node("dd", {}, value))),
  );
}
