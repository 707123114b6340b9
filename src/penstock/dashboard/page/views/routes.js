// Routes: how each stands, and the processes that serve them.

import { pause } from "../actions.js";
import { query } from "../api.js";
import { h, setAttribute, setText } from "../dom.js";
import { figures, onFigures } from "../live.js";
import { count, millis, rate } from "../numbers.js";
import { pill, showPill } from "../pill.js";
import { sparkline } from "../spark.js";
import { table } from "../table.js";
import { moment, span } from "../time.js";

export const title = "Routes";

const KEPT = 120;
/** Route → delivered a second, the last two minutes; kept while the page is open. */
const rates = new Map();
let counted = null;

export function mount(root) {
  const routes = routeTable();
  const processes = processTable();
  root.append(
    h("div.head", {}, h("h1", {}, title)),
    h("section.card", {}, routes.node),
    h("section.card", {}, h("h2", {}, "Processes"), processes.node));
  return onFigures((stats) => {
    routes.update(Object.entries(stats.routes).sort(([a], [b]) => a.localeCompare(b)).map(([name, route]) => ({ name, ...route })));
    processes.update(stats.processes);
  });
}

function routeTable() {
  return table({
    caption: "Routes",
    key: (route) => route.name,
    empty: h("p.soft", {}, "No route is known yet."),
    columns: [
      {
        label: "Route",
        make: () => h("div.two", {}, h("b"), h("span.soft.mono")),
        update(node, route) {
          setText(node.firstChild, route.name);
          setText(node.lastChild, route.sink ?? "no process serves it");
          setAttribute(node.lastChild, "title", route.sink);
        },
      },
      { label: "State", make: () => pill(""), update: showState },
      {
        label: "Delivered /s", number: true,
        make: sparkCell,
        update: (node, route) => node.show(rates.get(route.name) ?? []),
      },
      { label: "In flight", number: true, class: "roomy", make: meterCell, update: (node, route) => node.show(route.in_flight, route.capacity) },
      { label: "Scheduled", number: true, class: "roomy", text: (route) => count(route.scheduled) },
      { label: "Overdue", number: true, class: "roomy", text: (route) => count(route.overdue) },
      { label: "Errors", number: true, wide: true, text: (route) => count(route.errors) },
      {
        label: "Dead", number: true,
        make: () => h("a"),
        update(node, route) {
          setText(node, count(route.dead));
          setAttribute(node, "href", `#/messages${query({ state: "dead", route: route.name })}`);
        },
      },
      { label: "Next due", wide: true, class: "line", text: (route) => (route.next_due ? nextDue(route.next_due) : "–") },
      {
        label: "", class: "act",
        make: (read) => h("button.plain", { type: "button", onclick: () => pause("routes", read().name, !read().paused) }),
        update(node, route) {
          setText(node, route.paused ? "Resume" : "Pause");
          node.setAttribute("aria-label", `${node.textContent} ${route.name}`);
        },
      },
    ],
  });
}

const MEANING = {
  paused: "None of its messages are sent until it is resumed.",
  "nobody serves it": "The store holds messages for it, and no process knows where they go.",
  "breaker open": "The sink does not answer: messages wait in the store, and one is tried now and then.",
  "sink never reached": "The sink has not answered since a worker started: messages go to it one by one until it does.",
};

function stateOf(route) {
  if (route.paused) return "paused";
  if (route.sink === null) return "nobody serves it";
  if (route.waiting_for_sink) return "breaker open";
  return route.reached === false ? "sink never reached" : "running";
}

function showState(node, route) {
  showPill(node, stateOf(route));
  setAttribute(node, "title", MEANING[stateOf(route)]);
}

function nextDue(text) {
  const ahead = Date.parse(text) - Date.parse(figures.stats.now);
  return ahead <= 0 ? "now" : `in ${millis(ahead)}`;
}

function keepRates(stats, before) {
  if (!before || counted === stats.now) return;
  counted = stats.now;
  const seconds = Math.max(0.001, (Date.parse(stats.now) - Date.parse(before.now)) / 1000);
  for (const name of Object.keys(stats.routes)) {
    const grown = (stats.counts[name]?.delivered ?? 0) - (before.counts[name]?.delivered ?? 0);
    const kept = rates.get(name) ?? [];
    kept.push(Math.max(0, grown) / seconds);
    rates.set(name, kept.slice(-KEPT));
  }
}

onFigures(keepRates); // whatever view is open: the curve is there when this one is

function sparkCell() {
  const spark = sparkline("delivered");
  const number = h("span", {}, "–");
  const node = h("div.beside", {}, spark.node, number);
  node.show = (kept) => {
    setText(number, rate(kept.at(-1)));
    spark.draw(kept, KEPT);
  };
  return node;
}

function meterCell() {
  const bar = h("span.bar", { "aria-hidden": "true" }, h("i"));
  const number = h("span");
  const node = h("div.beside", {}, bar, number);
  node.show = (used, capacity) => {
    setText(number, used === null || used === undefined ? "–" : `${count(used)} / ${count(capacity)}`);
    bar.firstChild.style.width = `${capacity ? Math.min(100, (100 * used) / capacity) : 0}%`;
  };
  return node;
}

function processTable() {
  return table({
    caption: "Processes",
    key: (process) => process.id,
    empty: h("p.soft", {}, "No process has reported yet."),
    columns: [
      { label: "Process", text: (process) => `${process.host}:${process.pid}` },
      { label: "Role", text: (process) => process.role },
      { label: "Last seen", make: () => pill(""), update: showSeen },
      { label: "Up for", number: true, text: (process) => span((Date.parse(process.alive ? figures.stats.now : process.last_seen) - Date.parse(process.started)) / 1000) },
      { label: "Started", wide: true, text: (process) => moment(process.started) },
      { label: "Version", wide: true, text: (process) => process.version },
      { label: "In flight", number: true, text: (process) => count(Object.values(process.routes).reduce((sum, route) => sum + route.in_flight, 0)) },
      { label: "Metrics", wide: true, class: "mono", text: (process) => process.metrics ?? "–" },
    ],
  });
}

function showSeen(node, process) {
  const ago = Date.parse(figures.stats.now) - Date.parse(process.last_seen);
  const words = ago < 3000 && process.alive ? "now" : `${span(ago / 1000)} ago`;
  setText(node, process.stopped ? `stopped ${words}` : words);
  node.dataset.tone = process.alive ? "good" : process.stopped ? "off" : "bad";
}
