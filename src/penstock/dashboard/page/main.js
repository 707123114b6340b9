// The shell: which view is shown, how the connection stands, and the token.

import { refused } from "./api.js";
import { h, setText } from "./dom.js";
import { askToken } from "./gate.js";
import { live, onFigures, start } from "./live.js";
import { compact } from "./numbers.js";
import { zone } from "./time.js";
import { forgetToken, token } from "./token.js";
import * as dead from "./views/dead.js";
import * as forecast from "./views/forecast.js";
import * as message from "./views/message.js";
import * as messages from "./views/messages.js";
import * as now from "./views/now.js";
import * as policies from "./views/policies.js";
import * as recurring from "./views/recurring.js";
import * as rooms from "./views/rooms.js";
import * as routes from "./views/routes.js";

const VIEWS = { now, forecast, routes, messages, message, dead, recurring, policies, rooms };
const main = document.getElementById("main");
let leave = () => {};
let first = true;

/** "#/messages?state=dead" → the view, and what it is to show. */
function address() {
  const [, path = "", search = ""] = /^#\/?([^?]*)\??(.*)$/.exec(location.hash) ?? [];
  const [name, ...rest] = path.split("/");
  const known = Object.hasOwn(VIEWS, name) ? name : "now";
  return { name: known, params: { path: decode(rest.join("/")), search: new URLSearchParams(search) } };
}

function decode(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function show() {
  if (location.hash === "#main") { main.focus(); return; }
  const { name, params } = address();
  const view = VIEWS[name];
  leave();
  const root = h("div.view");
  main.replaceChildren(root);
  leave = view.mount(root, params);
  document.title = `${view.title} · Penstock`;
  for (const link of document.querySelectorAll(".rail a")) {
    const current = link.hash.split("?")[0] === `#/${view.under ?? name}`;
    if (current) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
    if (current && !first) link.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  if (!first) { main.focus({ preventScroll: true }); scrollTo(0, 0); }
  first = false;
}

function showLink({ detail }) {
  const link = document.getElementById("link");
  link.dataset.state = detail.state;
  const said = { live: "live", lost: "reconnecting", closed: "signed out" };
  setText(document.getElementById("link-text"), said[detail.state]);
  link.title = detail.error?.message ?? "";
  if (detail.state === "live") document.getElementById("token").hidden = !token();
}

function showShell(stats) {
  setText(document.getElementById("version"), `Penstock ${stats.version}`);
  const number = stats.states.dead ?? 0;
  const badge = document.getElementById("dead-count");
  badge.hidden = !number;
  setText(badge, compact(number));
}

async function gate(wrong) {
  showLink({ detail: { state: "closed" } });
  if (await askToken(wrong)) begin();
}

function begin() {
  show();
  start();
}

setText(document.getElementById("zone"), `Times in ${zone}`);
document.getElementById("token").addEventListener("click", () => {
  forgetToken();
  location.reload();
});
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
live.addEventListener("link", showLink);
refused.addEventListener("refused", ({ detail: wrong }) => gate(wrong));
addEventListener("hashchange", show);
onFigures(showShell);
begin();
