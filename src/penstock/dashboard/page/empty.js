// Places with nothing in them say how something gets there.

import { address } from "./api.js";
import { h } from "./dom.js";

/** A sentence and a line to try it with. */
export function lesson(text, ...commands) {
  return h("div.lesson", {}, h("p", {}, text), commands.length ? commandBlock(commands.join("\n")) : null);
}

function commandBlock(text) {
  const copy = h("button.plain", {
    type: "button",
    async onclick() {
      await navigator.clipboard?.writeText(text);
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    },
  }, "Copy");
  return h("div.command", {}, h("pre", { tabindex: 0, "aria-label": "A command to try" }, text), copy);
}

/** curl to this very server. */
export function curl(method, path, body) {
  const parts = [`curl -s${method === "POST" ? "" : ` -X ${method}`} '${address(path)}'`];
  if (body !== undefined) parts.push("-H 'content-type: application/json'", `-d '${JSON.stringify(body)}'`);
  return parts.join(" \\\n     ");
}
