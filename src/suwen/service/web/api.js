// Talking to the service: one function, one kind of error. Keeps the key for this tab, and asks for one on 401.

const KEY = "suwen.key";
let prompt = null;
let asking = null;

/** What went wrong, as the service told it. */
export class ApiError extends Error {
  constructor(status, code, message, more = {}) {
    super(message);
    Object.assign(this, { status, code, requestId: null, param: null, retryAfter: null }, more);
  }
}

/** Name who asks the person for a key: a function of whether one was refused, giving the key or null. */
export function whenRefused(ask) {
  prompt = ask;
}

export const key = () => sessionStorage.getItem(KEY);
export function keepKey(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
  dispatchEvent(new Event("suwen:key"));
}

/** Ask for a key; several requests that were refused at once share one question. */
export function askForKey(refused) {
  asking ||= prompt(refused).finally(() => {
    asking = null;
  });
  return asking;
}

/** Call the service; gives the answer's JSON, or throws an ApiError (or an AbortError when it was called off). */
export async function call(path, { method = "GET", body = undefined, signal = undefined } = {}) {
  for (;;) {
    const used = key();
    const answer = await send(path, method, body, signal, used);
    if (answer.status !== 401 || !prompt) return read(answer);
    // Another request may have brought a key meanwhile.
    if (key() === used && !(await askForKey(Boolean(used)))) return read(answer);
  }
}

async function send(path, method, body, signal, used) {
  const headers = { Accept: "application/json" };
  if (used) headers.Authorization = `Bearer ${used}`;
  // A file goes as it is, and brings its kind.
  const raw = body instanceof Blob;
  if (body !== undefined) headers["Content-Type"] = raw ? body.type : "application/json";
  const options = { method, headers, signal, body: body === undefined || raw ? body : JSON.stringify(body) };
  try {
    return await fetch(path, { ...options, credentials: "same-origin", cache: "no-store" });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new ApiError(0, "unreachable", "");
  }
}

async function read(answer) {
  const data = await answer.json().catch(() => null);
  if (answer.ok && data !== null) return data;
  const told = (data && data.error) || {};
  throw new ApiError(answer.status, told.code || "unreadable", told.message || answer.statusText, {
    requestId: told.request_id || answer.headers.get("X-Request-Id"),
    param: told.param || null,
    retryAfter: Number(answer.headers.get("Retry-After")) || null,
  });
}
