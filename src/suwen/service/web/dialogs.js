// Windows over the page: opening them, closing them, and the two that every page has (the key, the help).

import { keepKey, whenRefused } from "./api.js";
import { byId, fill, node } from "./nodes.js";
import { say } from "./words.js";

const KEYS = [
  [["/"], "keys.focus"],
  [["Enter"], "keys.submit"],
  [["j", "↓"], "keys.down"],
  [["k", "↑"], "keys.up"],
  [["h", "l", "←", "→"], "keys.columns"],
  [["n", "p"], "keys.page"],
  [["o"], "keys.open"],
  [["1", "2", "3", "4"], "keys.modes"],
  [["m"], "keys.tier"],
  [["f"], "keys.filters"],
  [["a"], "keys.add"],
  [["t"], "keys.theme"],
  [["Esc"], "keys.escape"],
  [["?"], "keys.help"],
];

/** Let the buttons of a dialog, and a click beside it, close it. */
export function closable(dialog) {
  for (const button of dialog.querySelectorAll("[data-close]")) {
    button.addEventListener("click", () => dialog.close());
  }
  dialog.addEventListener("mousedown", (event) => {
    const box = dialog.getBoundingClientRect();
    const inside = event.clientX >= box.left && event.clientX <= box.right;
    // A form in progress is not thrown away by a slip of the mouse.
    if (event.target === dialog && !(inside && event.clientY >= box.top && event.clientY <= box.bottom)) {
      if (!dialog.querySelector("form")) dialog.close();
    }
  });
}

/** Show the keys. */
export function help() {
  const rows = KEYS.map(([keys, what]) => [
    node("dt", {}, keys.map((key) => node("kbd", {}, key))),
    node("dd", {}, say(what)),
  ]);
  fill(byId("help-keys"), ...rows);
  byId("help-dialog").showModal();
}

const SINGLE = "suwen.keys";

/** Whether single letters are commands: who dictates, or types by accident, can turn them off. */
export function singleKeys() {
  try {
    return localStorage.getItem(SINGLE) !== "off";
  } catch {
    return byId("help-single").checked;
  }
}

function keepSingle() {
  try {
    localStorage.setItem(SINGLE, byId("help-single").checked ? "on" : "off");
  } catch {
    // Not kept: the box itself is asked.
  }
}

/** Make the two dialogs of every page work. */
export function begin() {
  closable(byId("help-dialog"));
  closable(byId("key-dialog"));
  byId("open-help").addEventListener("click", help);
  byId("help-single").checked = singleKeys();
  byId("help-single").addEventListener("change", keepSingle);
  whenRefused(askKey);
}

function askKey(refused) {
  const dialog = byId("key-dialog");
  const input = byId("key-value");
  byId("key-refused").hidden = !refused;
  input.value = "";
  return new Promise((answer) => {
    let given = null;
    const submit = (event) => {
      event.preventDefault();
      given = input.value.trim() || null;
      dialog.close();
    };
    const form = dialog.querySelector("form");
    form.addEventListener("submit", submit);
    dialog.addEventListener(
      "close",
      () => {
        form.removeEventListener("submit", submit);
        input.value = "";
        if (given) keepKey(given);
        answer(given);
      },
      { once: true },
    );
    dialog.showModal();
    input.focus();
  });
}
