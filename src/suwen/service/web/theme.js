// Light or dark, set before anything is drawn: the one script that is no module, so that the page never flashes.
"use strict";

(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const kept = () => {
    try {
      return localStorage.getItem("suwen.theme");
    } catch {
      return null; // storage may be forbidden: the system's choice then holds
    }
  };
  const apply = () => {
    root.dataset.theme = kept() || (dark.matches ? "dark" : "light");
  };
  apply();
  dark.addEventListener("change", apply);
  root.addEventListener("suwen:theme", () => {
    const next = root.dataset.theme === "dark" ? "light" : "dark";
    try {
      // The system's own choice is not kept, so that the page goes on following it.
      if ((next === "dark") === dark.matches) localStorage.removeItem("suwen.theme");
      else localStorage.setItem("suwen.theme", next);
    } catch {
      // Not kept: it holds for this page.
    }
    root.dataset.theme = next;
  });
})();
