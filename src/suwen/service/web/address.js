// What is searched, as it stands in the address. After the #, so that a question never reaches a server's or a proxy's
// log; what stands after a ? is taken over too, for links and search shortcuts of a browser.

export const MODES = ["hybrid", "dense", "lexical", "compare"];

/** The search that the address asks for. */
export function fromAddress() {
  const given = new URLSearchParams(location.hash.length > 1 ? location.hash.slice(1) : location.search);
  const mode = given.get("mode");
  return {
    q: given.get("q") || "",
    mode: MODES.includes(mode) ? mode : "hybrid",
    tier: given.get("tier") || "",
    filters: given.getAll("where"),
    sort: given.get("sort") || "",
    perDocument: given.get("per") === "document",
    hyde: given.get("hyde") === "on",
    page: Math.min(Math.max(1, Number.parseInt(given.get("page"), 10) || 1), 900),
    lang: ["zh", "en"].includes(given.get("lang")) ? given.get("lang") : "",
  };
}

function toAddress(state) {
  const told = new URLSearchParams();
  if (state.q) told.set("q", state.q);
  if (state.mode !== "hybrid") told.set("mode", state.mode);
  if (state.tier) told.set("tier", state.tier);
  for (const clause of state.filters) told.append("where", clause);
  if (state.sort) told.set("sort", state.sort);
  if (state.perDocument) told.set("per", "document");
  if (state.hyde) told.set("hyde", "on");
  if (state.page > 1) told.set("page", String(state.page));
  if (state.lang) told.set("lang", state.lang);
  const text = told.toString();
  return location.pathname + (text ? `#${text}` : "");
}

/** Write the search into the address: as a new step of the history, or in place of the present one. */
export function keepAddress(state, replace = false) {
  const address = toAddress(state);
  if (address === location.pathname + location.hash && !location.search) return;
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
}
