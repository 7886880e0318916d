// The API page: sends the request that the reader wrote, with this tab's key, and shows what came back as text.

const KEY = "suwen.key";

async function answer(form) {
  const { path, body } = form.elements;
  const headers = {};
  if (form.dataset.kind) headers["Content-Type"] = form.dataset.kind;
  const key = sessionStorage.getItem(KEY);
  if (key) headers.Authorization = `Bearer ${key}`;
  // Only this server is asked, whatever was typed.
  const address = new URL(path.value, location.origin);
  if (address.origin !== location.origin) throw new Error("the address must begin with /");
  const got = await fetch(address, { method: form.dataset.method, headers, body: body?.value });
  const text = await got.text();
  let shown = text;
  try {
    shown = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // Not JSON: shown as it is.
  }
  return { status: got.status, text: `${got.status} ${got.statusText}\n${shown.slice(0, 100000)}` };
}

/** Where the server wants a key that this tab has not: asked for once, and kept for the tab as the search page does. */
function askForKey(form) {
  let field = form.querySelector('input[type="password"]');
  if (field) return field;
  const label = document.createElement("label");
  label.textContent = "Key";
  field = document.createElement("input");
  field.type = "password";
  field.autocomplete = "off";
  label.append(field);
  field.addEventListener("change", () => sessionStorage.setItem(KEY, field.value.trim()));
  form.querySelector("button").before(label);
  field.focus();
  return field;
}

document.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  const output = form.querySelector("output");
  output.textContent = "…";
  try {
    const { status, text } = await answer(form);
    output.textContent = text;
    if (status === 401) askForKey(form);
  } catch (problem) {
    output.textContent = String(problem.message);
  }
});
