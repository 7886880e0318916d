// The labelling page. Texts of a collection are only ever set as text, never as HTML.
"use strict";

const byId = (id) => document.getElementById(id);
const LABELS = { 1: "positive", 2: "negative", 3: "unsure" };
const WORDS = { positive: "It answers 能回答", negative: "It does not 不能", unsure: "I cannot tell 不确定" };
// Blind labels, or settling what reviewers differ on.
const MODES = {
  label: { pair: "api/pair", label: "api/label", done: "labelled" },
  settle: { pair: "api/dispute", label: "api/settle", done: "settled" },
};
let mode = "label";
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
    complain(`${problem.message}. Nothing was lost: try again. 没有丢失，请重试。`);
  } finally {
    busy = false;
  }
}

function element(name, text, kind) {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function showOpinions(opinions) {
  const lines = (opinions || []).map((one) => {
    const line = element("li", `${one.reviewer}: ${WORDS[one.label]}`, one.label);
    if (one.note) line.append(element("span", ` — ${one.note}`, "soft"));
    return line;
  });
  byId("opinions").replaceChildren(...lines);
  byId("opinions").hidden = !lines.length;
}

function showMode(disputed) {
  const settling = mode === "settle";
  byId("modes").hidden = !disputed && !settling;
  byId("settle").setAttribute("aria-pressed", String(settling));
  byId("disputes").textContent = settling
    ? "Back to labelling 回到标注"
    : `Settle disagreements 裁定分歧 (${disputed})`;
  byId("ask").hidden = settling;
  byId("ask-settle").hidden = !settling;
  byId("end-label").hidden = settling;
  byId("end-settle").hidden = !settling;
}

async function showProgress() {
  const far = await ask("api/progress");
  const lines = far.reviewers.map((one) => {
    const line = element("p", "", "one");
    const bar = document.createElement("progress");
    bar.max = far.total;
    bar.value = one.done;
    line.append(element("span", one.name), bar, element("span", `${one.done} of ${far.total}`));
    return line;
  });
  byId("reviewers").replaceChildren(...lines);
  byId("sum").textContent =
    `${far.labelled} of ${far.total} pairs have a label; reviewers differ on ${far.disputed}, ` +
    `${far.settled} of them settled.`;
}

function show(next) {
  state = next;
  showMode(next.disputed || 0);
  showOpinions(next.opinions);
  byId("far").hidden = false;
  if (byId("far").open) showProgress().catch((problem) => complain(problem.message));
  const ended = next.pair === undefined;
  byId("enter").hidden = true;
  byId("who").hidden = byId("bar").hidden = false;
  byId("name").textContent = reviewer;
  byId("count").textContent = `${next.done} of ${next.total} ${MODES[mode].done}` + (ended ? "" : `, this is ${next.at + 1}`);
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
  show(await ask(`${MODES[mode].pair}?reviewer=${encodeURIComponent(reviewer)}${where}`));
}

async function label(name) {
  const body = JSON.stringify({ reviewer, pair: state.pair, label: name, note: byId("note").value });
  const here = state.at;
  const next = await ask(MODES[mode].label, { method: "POST", headers: { "Content-Type": "application/json" }, body });
  byId("note").blur();
  // Who went back to change a label goes on from there.
  if (state.label) await go(here + 1);
  else show(next);
}

async function enter(name) {
  reviewer = name.trim();
  state = null;
  await once(() => go(null));
  if (!state) return;
  location.hash = encodeURIComponent(reviewer);
  byId("guide").open = state.done === 0;
  // Not before: where there are keys, reading them takes one, which is asked for with the first pair. Nor in its turn: a
  // label given while they are on their way would be dropped.
  await readGuidelines().catch((problem) => complain(problem.message));
}

async function change(to) {
  mode = to;
  await go(null);
}

async function readGuidelines() {
  const text = (await ask("api/guidelines")).guidelines;
  byId("guidelines").textContent = text;
  byId("guide").hidden = false;
  const own = /^# (.+[?？])\s*$/m.exec(text.split("\n", 1)[0]);
  if (own) askOwn(own[1]);
}

function askOwn(question) {
  // Guidelines whose heading is a question ask that one: "it answers" would be no answer to it.
  byId("ask").textContent = question;
  Object.assign(WORDS, { positive: "Yes 是", negative: "No 否" });
  for (const button of document.querySelectorAll("[data-label]")) {
    button.replaceChildren(button.querySelector("kbd"), ` ${WORDS[button.dataset.label]}`);
  }
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
byId("settle").addEventListener("click", () => once(() => change(mode === "label" ? "settle" : "label")));
byId("far").addEventListener("toggle", () => {
  // Changes nothing, so it need not wait its turn: while another request is on its way it would never be shown.
  if (byId("far").open) showProgress().catch((problem) => complain(problem.message));
});
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
    g: () => (byId("guide").open = !byId("guide").open),
    p: () => (byId("far").open = !byId("far").open),
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
