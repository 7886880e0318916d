// Beside the hits: how the best of them are spread over the values of each field, and the order they stand in.

import { condition, missing } from "./filters.js";
import { languageOf, node } from "./nodes.js";
import { number, say } from "./words.js";

/** Fields that are counted: what one glance takes in. */
export const MOST_FIELDS = 8;
const SHOWN = 6;

/** The list, or nothing where no field tells hits apart. `actions`: onfilter, onunfilter, onsort, fields. */
export function facets(answer, state, actions) {
  const told = Object.entries(answer.facets || {}).filter(([, facet]) => telling(facet));
  if (!told.length && !state.sort) return null;
  return node("aside.facets", { "aria-label": say("facets.title") }, sorting(state, actions),
    told.map(([field, facet]) => group(field, facet, state, actions)));
}

// An id or an address is another one in every document.
const telling = ({ values, more }) => values.length > 0 && (values[0].count > 1 || values.length + more <= SHOWN);

function sorting(state, actions) {
  const orders = actions.fields.flatMap((field) => [[field, `${field} ↑`], [`-${field}`, `${field} ↓`]]);
  const choices = [["", say("sort.none")], ...orders];
  if (state.sort && !orders.some(([order]) => order === state.sort)) choices.push([state.sort, state.sort]);
  const options = choices.map(([value, text]) => node("option", { value }, text));
  const picker = node("select", { id: "sort", onchange: (event) => actions.onsort(event.target.value) }, options);
  picker.value = state.sort;
  return node("label.sort", { title: say("sort.what") }, node("span", {}, say("sort")), picker);
}

function group(field, facet, state, actions) {
  const rows = facet.values.slice(0, SHOWN).map(({ value, count }) =>
    row(String(value), condition(field, "=", String(value)), count, state, actions));
  if (facet.missing) rows.push(row(say("facets.missing"), missing(field), facet.missing, state, actions));
  const rest = facet.more + Math.max(0, facet.values.length - SHOWN);
  if (rest) rows.push(node("li.soft", {}, say("facets.more", { count: number(rest) })));
  return node("section", {}, node("h3", { lang: languageOf(field) }, field), node("ul", {}, rows));
}

function row(text, clause, count, state, actions) {
  const active = state.filters.includes(clause);
  const act = () => (active ? actions.onunfilter(clause) : actions.onfilter(clause));
  const given = { type: "button", "aria-pressed": String(active), title: say(active ? "filter.remove" : "filter.by", { clause }) };
  const parts = [node("span.value", { lang: languageOf(text) }, text), node("span.soft", {}, number(count))];
  return node("li", {}, node("button.link", { ...given, onclick: act }, parts));
}
