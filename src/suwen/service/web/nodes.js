// Making elements. Text becomes text nodes, whatever it holds: nothing on this page is ever parsed as HTML.

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open", "tabIndex", "textContent"]);

/** An element: `node("p.soft", { title: "…", onclick: f }, "text", other)`; null children are left out. */
export function node(kind, given = {}, ...children) {
  const [name, ...classes] = kind.split(".");
  const made = document.createElement(name);
  if (classes.length) made.classList.add(...classes);
  for (const [key, value] of Object.entries(given)) {
    if (value === null || value === undefined) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (PROPERTIES.has(key)) made[key] = value;
    else made.setAttribute(key, String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

export const byId = (id) => document.getElementById(id);

/** Put these in place of what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** The language a text is in, for the reader's voice and the font: Chinese when it holds Chinese characters. */
export const languageOf = (text) => (/\p{Script=Han}/u.test(text) ? "zh" : "en");
