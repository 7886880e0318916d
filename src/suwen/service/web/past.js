// Searches of before, kept in this browser only where the reader asks for it: computers on a ward are shared.

const KEPT = "suwen.past";
const MOST = 20;

function read() {
  try {
    return JSON.parse(localStorage.getItem(KEPT));
  } catch {
    return null; // storage may be forbidden, or hold what is no list
  }
}

function write(list) {
  try {
    if (list === null) localStorage.removeItem(KEPT);
    else localStorage.setItem(KEPT, JSON.stringify(list));
  } catch {
    // Not kept.
  }
}

/** Whether searches are kept; not unless somebody turned it on. */
export const kept = () => Array.isArray(read());

/** The searches that are kept, the newest first: `{ q, address }`. */
export function entries() {
  const list = read();
  const sound = (one) => typeof one?.q === "string" && typeof one?.address === "string" && one.address.startsWith("#");
  return Array.isArray(list) ? list.filter(sound).slice(0, MOST) : [];
}

/** Keep a search, if searches are kept; the same question is kept once. */
export function remember(q, address) {
  if (!q || !kept()) return;
  write([{ q, address }, ...entries().filter((one) => one.q !== q)].slice(0, MOST));
}

/** Keep searches from now on, or keep none and forget those that were. */
export const keep = (on) => write(on ? entries() : null);

/** Forget the searches; whether new ones are kept stays as it is. */
export function clear() {
  if (kept()) write([]);
}
