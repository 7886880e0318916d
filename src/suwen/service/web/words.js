// The language of the page: which one, what it says, and the parts of the page that say it.

import english from "./words_en.js";
import chinese from "./words_zh.js";

const WORDS = { zh: chinese, en: english };
const KEPT = "suwen.lang";
let current = null;

export const language = () => current;

/**
 * A sentence by its key, with `{name}` replaced; a key without words gives null. Of two sentences with `||` between
 * them, the first is for a `count` of one.
 */
export function find(key, values = {}) {
  const text = WORDS[current][key];
  if (text === undefined) return null;
  const [one, more = one] = text.split("||");
  return (String(values.count) === "1" ? one : more).replace(/\{(\w+)\}/g, (all, name) => String(values[name] ?? all));
}
export const say = (key, values) => find(key, values) ?? key;

export const number = (value, digits = 0) =>
  new Intl.NumberFormat(current, { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value);

/** A confidence with two digits, cut: 0.395 is no answer, and 0.40 would be one. */
export const confidence = (value) => number(Math.floor(100 * value + 1e-9) / 100, 2);

/** Milliseconds with the digits that tell something: 0.12, 3.4, 57. */
export const milliseconds = (value) => number(value, value < 1 ? 2 : value < 20 ? 1 : 0);

/** Put the words where the markup asks for them: `data-say` as text, `-label`, `-title` and `-hint` as attributes. */
export function speak(root = document) {
  for (const element of root.querySelectorAll("[data-say]")) element.textContent = say(element.dataset.say);
  const attributes = { sayLabel: "aria-label", sayTitle: "title", sayHint: "placeholder" };
  for (const [data, attribute] of Object.entries(attributes)) {
    const marked = `[data-${data.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}]`;
    for (const element of root.querySelectorAll(marked)) element.setAttribute(attribute, say(element.dataset[data]));
  }
}

/** Take up a language: what the address asks for, what was chosen before, what the browser prefers. */
export function begin(asked) {
  let kept = null;
  try {
    kept = localStorage.getItem(KEPT);
  } catch {
    // Storage may be forbidden.
  }
  const wished = [asked, kept, ...(navigator.languages || [navigator.language])].filter(Boolean);
  const known = wished.map((tag) => tag.toLowerCase().split("-")[0]).find((tag) => tag in WORDS);
  set(known || "en", false);
}

/** Change to a language; who shows words of their own listens to `suwen:language`. */
export function set(tag, keep = true) {
  current = tag;
  document.documentElement.lang = tag === "zh" ? "zh-Hans" : "en";
  if (keep) {
    try {
      localStorage.setItem(KEPT, tag);
    } catch {
      // Storage may be forbidden: it holds for this page.
    }
  }
  speak();
  dispatchEvent(new Event("suwen:language"));
}
