// Light or dark: the system's choice until somebody makes another. A classic script that runs
// before the first paint, so that the page never flashes in the wrong one.
"use strict";
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => {
    try { return localStorage.getItem("penstock-theme"); } catch { return null; }
  };
  const show = () => {
    root.dataset.theme = chosen() ?? (dark.matches ? "dark" : "light");
    root.dispatchEvent(new Event("themechange"));
  };
  const toggle = () => {
    const next = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("penstock-theme", next); } catch { /* a private window may refuse */ }
    show();
    if (root.dataset.theme !== next) { // nothing could be kept: for this visit, then
      root.dataset.theme = next;
      root.dispatchEvent(new Event("themechange"));
    }
  };
  dark.addEventListener("change", show);
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", toggle);
  });
  show();
})();
