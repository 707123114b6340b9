// What a view says when it cannot show something, and short words about what was done.

import { h } from "./dom.js";

const PASSING = 6000;

/** Show an error in its own place, or clear it with null. */
export function notice(where, error) {
  where.hidden = !error;
  where.className = "notice";
  if (!error) { where.replaceChildren(); return; }
  if (where.textContent !== error.message) where.replaceChildren(h("p", {}, error.message));
}

export const noticePlace = () => h("div.notice", { role: "alert", hidden: true });

/** A line about what was done, which goes away by itself. */
export function toast(text) {
  const close = () => line.remove();
  const line = h("div.toast", {},
    h("span", {}, text),
    h("button.plain", { type: "button", "aria-label": "Close", onclick: close }, "×"));
  document.getElementById("toasts").append(line);
  setTimeout(close, PASSING);
}
