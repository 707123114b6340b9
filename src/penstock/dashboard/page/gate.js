// Asks for the token. One question at a time, however many calls were refused.

import { h } from "./dom.js";
import { forgetToken, keepToken } from "./token.js";

let asking = null;

/** Resolves when a token was given; `wrong`: one was tried and is not known. */
export function askToken(wrong) {
  if (wrong) forgetToken();
  asking ??= question(wrong).finally(() => { asking = null; });
  return asking;
}

function question(wrong) {
  const input = h("input", { type: "password", name: "token", autocomplete: "off", required: true, spellcheck: "false" });
  const form = h("form", { method: "dialog" },
    h("h2", { id: "gate-title" }, "This server asks for a token"),
    h("p", {}, "It is one of api.tokens in its configuration. A token with the scope read shows everything; write and admin also act."),
    h("label.field", {}, h("span", {}, "Token"), input),
    h("p.trouble", { role: "alert", hidden: !wrong }, "The server does not know that token. Try another."),
    h("p.soft", {}, "It is kept for this tab only and forgotten when you close it."),
    h("div.buttons", {}, h("button.primary", { type: "submit" }, "Go on")));
  const dialog = h("dialog", { "aria-labelledby": "gate-title" }, form);
  return new Promise((resolve) => {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      keepToken(input.value.trim());
      dialog.close();
      resolve(true);
    });
    dialog.addEventListener("cancel", (event) => event.preventDefault()); // there is nothing behind it
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  });
}
