// The review page where the service has keys: its own script calls the API without one. This one stands before it, adds
// the key of this tab to its requests, asks for one on 401, and tells errors in the page's own shape.

import { askForKey, keepKey, key, whenRefused } from "./api.js";
import { node } from "./nodes.js";

const plain = window.fetch.bind(window);

window.fetch = async (target, options = {}) => {
  for (;;) {
    const used = key();
    const headers = new Headers(options.headers || {});
    if (used) headers.set("Authorization", `Bearer ${used}`);
    const answer = await plain(target, { ...options, headers });
    if (answer.ok) return answer;
    const asked = (answer.status === 401 || answer.status === 403) && (await askForKey(Boolean(used)));
    if (!asked) return retold(answer);
  }
};

async function retold(answer) {
  const data = await answer.json().catch(() => ({}));
  const error = typeof data.error === "object" ? data.error?.message : data.error;
  return new Response(JSON.stringify({ error: error || answer.statusText }), { status: answer.status });
}

whenRefused((refused) => {
  const input = node("input", { type: "password", id: "key-value", autocomplete: "off", required: "" });
  const words = refused
    ? "That key may not label here. 这个密钥不能用于标注。"
    : "The service asks for a key that may write. 请输入可写入的密钥。";
  const form = node(
    "form",
    {},
    node("label", { for: "key-value" }, words),
    input,
    node("p", {}, node("button", { type: "submit" }, "Use it 使用")),
  );
  const dialog = node("dialog", { id: "key-dialog", "aria-label": "Key 密钥" }, form);
  document.body.append(dialog);
  return new Promise((answer) => {
    let given = null;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      given = input.value.trim() || null;
      dialog.close();
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (given) keepKey(given);
      answer(given);
    });
    dialog.showModal();
  });
});
