// The labelling page. Texts of a collection are only ever set as text, never as HTML.
"use strict";

const byId = (id) => document.getElementById(id);
const LABELS = { 1: "positive", 2: "negative", 3: "unsure" };
let reviewer = "";
let state = null;
let busy = false;

function complain(text) {
  byId("problem").textContent = text || "";
  byId("problem").hidden = !text;
}

async function ask(target, options) {
  const answer = await fetch(target, options);
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.error || answer.statusText);
  return data;
}

async function once(work) {
  // One request at a time: a second key while one is on its way would label the wrong pair.
  if (busy) return;
  busy = true;
  try {
    await work();
    complain("");
  } catch (problem) {
    complain(`${problem.message}. Nothing was lost: try again.`);
  } finally {
    busy = false;
  }
}

function show(next) {
  state = next;
  const ended = next.pair === undefined;
  byId("enter").hidden = true;
  byId("who").hidden = byId("bar").hidden = false;
  byId("name").textContent = reviewer;
  byId("count").textContent = `${next.done} of ${next.total} labelled` + (ended ? "" : `, this is ${next.at + 1}`);
  byId("bar").max = next.total;
  byId("bar").value = next.done;
  byId("work").hidden = ended;
  byId("end").hidden = !ended;
  if (ended) return;
  byId("query").textContent = next.query;
  byId("passage").textContent = next.passage;
  byId("passage").scrollTop = 0;
  byId("note").value = next.note;
  for (const button of document.querySelectorAll("[data-label]")) {
    button.setAttribute("aria-pressed", String(button.dataset.label === next.label));
  }
  window.scrollTo(0, 0);
}

async function go(at) {
  const where = at === null ? "" : `&at=${at}`;
  show(await ask(`api/pair?reviewer=${encodeURIComponent(reviewer)}${where}`));
}

async function label(name) {
  const body = JSON.stringify({ reviewer, pair: state.pair, label: name, note: byId("note").value });
  const here = state.at;
  const next = await ask("api/label", { method: "POST", headers: { "Content-Type": "application/json" }, body });
  byId("note").blur();
  // Who went back to change a label goes on from there.
  if (state.label) await go(here + 1);
  else show(next);
}

function enter(name) {
  reviewer = name.trim();
  return once(async () => {
    await go(null);
    location.hash = encodeURIComponent(reviewer);
  });
}

byId("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  enter(byId("reviewer").value);
});
byId("leave").addEventListener("click", (event) => {
  event.preventDefault();
  location.hash = "";
  location.reload();
});
for (const button of document.querySelectorAll("[data-label]")) {
  button.addEventListener("click", () => once(() => label(button.dataset.label)));
}
addEventListener("keydown", (event) => {
  if (!state || event.ctrlKey || event.metaKey || event.altKey) return;
  const writing = event.target === byId("note");
  if (writing && event.key !== "Escape") return;
  const at = state.at;
  const act = {
    Escape: () => byId("note").blur(),
    ArrowLeft: () => at > 0 && go(at - 1),
    ArrowRight: () => at < state.total && go(at + 1),
    0: () => go(null),
    n: () => byId("note").focus(),
  }[event.key];
  const name = LABELS[event.key];
  if (name && state.pair !== undefined) {
    event.preventDefault();
    once(() => label(name));
  } else if (act) {
    event.preventDefault();
    once(async () => act());
  }
});
if (location.hash.length > 1) enter(decodeURIComponent(location.hash.slice(1)));
else byId("reviewer").focus();
