// The pickers around the search box: mode, query encoder, filters. They hold the search that the page is about to run.

import { byId, fill, node } from "./nodes.js";
import { condition, missing, plausible } from "./filters.js";
import { say } from "./words.js";

let fields = [];
let tiers = { names: [], usual: "" };
const seen = new Map();

/** Take up what the service has: its tiers and the fields of its documents. */
export function offer(info) {
  fields = info.index?.fields || [];
  byId("hyde-switch").hidden = !info.hyde;
  tiers = { names: (info.pair?.tiers || []).map((tier) => tier.name ?? tier), usual: info.pair?.default_tier || "" };
}

/** The fields of its documents. */
export const known = () => fields;

/** Remember values of metadata that hits had, to propose them. */
export function learn(hits) {
  for (const hit of hits) {
    for (const [field, value] of Object.entries(hit.metadata || {})) {
      if (!seen.has(field)) seen.set(field, new Set());
      for (const one of [value].flat()) if (seen.get(field).size < 200) seen.get(field).add(String(one));
    }
  }
  propose();
}

/** Show a search in the pickers. */
export function show(state, remove) {
  if (document.activeElement !== byId("q") || !byId("q").value) byId("q").value = state.q;
  for (const radio of document.getElementsByName("mode")) radio.checked = radio.value === state.mode;
  byId("per-document").checked = state.perDocument;
  byId("hyde").checked = state.hyde;
  // Words are matched as they are typed.
  byId("hyde").disabled = state.mode === "lexical";
  showTiers(state);
  showFields();
  showFilters(state.filters, remove);
}

function showTiers(state) {
  const others = tiers.names.filter((name) => name !== tiers.usual);
  // A link may name a tier this service does not have: it is shown, and the service says what is wrong with it.
  if (state.tier && state.tier !== tiers.usual && !others.includes(state.tier)) others.push(state.tier);
  const first = tiers.usual ? say("tier.default", { name: tiers.usual }) : say("tier.loading");
  fill(byId("tier"), node("option", { value: "" }, first), others.map((name) => node("option", { value: name }, name)));
  byId("tier").value = others.includes(state.tier) ? state.tier : "";
  // Words are matched without an encoder.
  byId("tier").disabled = state.mode === "lexical";
}

function showFields() {
  const picked = byId("filter-field").value;
  fill(byId("filter-field"), fields.map((field) => node("option", { value: field }, field)));
  if (!fields.length) fill(byId("filter-field"), node("option", { value: "" }, say("filter.none")));
  if (fields.includes(picked)) byId("filter-field").value = picked;
  propose();
}

function propose() {
  const values = [...(seen.get(byId("filter-field").value) || [])].sort();
  fill(byId("filter-values"), values.map((value) => node("option", { value })));
}

function showFilters(clauses, remove) {
  byId("filter-count").hidden = byId("chips").hidden = !clauses.length;
  byId("filter-count").textContent = clauses.length;
  const chip = (clause) => {
    const act = { type: "button", "aria-label": say("filter.remove", { clause }), onclick: () => remove(clause) };
    return node("li", {}, node("button.chip", act, clause, node("span.cross", { "aria-hidden": "true" }, "×")));
  };
  fill(byId("chips"), clauses.map(chip));
}

/** What the pickers hold now, over the search as it was. */
export function taken(state) {
  const mode = [...document.getElementsByName("mode")].find((radio) => radio.checked)?.value || "hybrid";
  const tier = byId("tier").disabled ? state.tier : byId("tier").value;
  const [perDocument, hyde] = [byId("per-document").checked, byId("hyde").checked];
  return { ...state, q: byId("q").value.trim(), mode, tier, perDocument, hyde, page: 1 };
}

export function toggleFilters(open = byId("filters").hidden) {
  byId("filters").hidden = !open;
  byId("open-filters").setAttribute("aria-expanded", String(open));
  (open ? byId("filter-field") : byId("open-filters")).focus();
}

/** Make the filter forms work: `add(clause)` is told of each that is understood. */
export function begin(add) {
  const take = (clause, input) => {
    const understood = plausible(clause);
    byId("filter-complaint").hidden = understood;
    byId("filter-complaint").textContent = understood ? "" : say("filter.bad", { clause });
    if (!understood) return input.focus();
    input.value = "";
    return add(clause);
  };
  byId("open-filters").addEventListener("click", () => toggleFilters());
  byId("filter-field").addEventListener("change", propose);
  byId("filter-operator").addEventListener("change", () => {
    byId("filter-value").disabled = byId("filter-operator").value === "missing";
  });
  byId("pick-filter").addEventListener("submit", (event) => {
    event.preventDefault();
    const [field, operator] = [byId("filter-field").value, byId("filter-operator").value];
    // A bar between values is "or" here too, so it is not quoted.
    const values = byId("filter-value").value.trim().split("|").map((one) => one.trim());
    const clause = operator === "missing" ? missing(field) : condition(field, operator, ...values);
    take(values[0] || operator === "missing" ? clause : field + operator, byId("filter-value"));
  });
  byId("type-filter").addEventListener("submit", (event) => {
    event.preventDefault();
    take(byId("filter-free").value.trim(), byId("filter-free"));
  });
}
