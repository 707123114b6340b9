// Now: what goes through the gate this second, and the last quarter of an hour.

import { chart } from "../chart.js";
import { h, setText } from "../dom.js";
import { curl, lesson } from "../empty.js";
import { history, onFigures } from "../live.js";
import { compact, count, millis, rate } from "../numbers.js";
import { sparkline } from "../spark.js";

export const title = "Now";

const STAGES = [
  ["accepted", "Accepted", "taken in and durable"],
  ["released", "Released", "due and on their way"],
  ["delivered", "Delivered", "confirmed by the sink"],
  ["failed", "Failed", "attempts that did not arrive"],
  ["deferred", "Deferred", "a policy said: later"],
  ["blocked", "Blocked", "a policy said: no"],
];
const SPANS = [[60, "1 min"], [300, "5 min"], [900, "15 min"]];
let chosen = 900; // seconds

export function mount(root) {
  const tiles = STAGES.map(([name, label, meaning]) => tile(name, label, meaning));
  const pending = big("Pending", "pending");
  const late = big("Lateness", "late_p50");
  const charts = [
    [chart({ title: "Through the gate, per second", format: rate, axis: compact, series: STAGES.slice(0, 3).map(line) }), STAGES.slice(0, 3).map(([name]) => name)],
    [chart({ title: "Held back, per second", format: rate, axis: compact, series: STAGES.slice(3).map(line) }), STAGES.slice(3).map(([name]) => name)],
    [chart({ title: "Pending", format: count, axis: compact, series: [{ label: "pending", hue: "pending", fill: true }] }), ["pending"]],
    [chart({ title: "Lateness", format: millis, axis: millis, series: [{ label: "p99", hue: "late_p99", fill: true }, { label: "p50", hue: "late_p50" }] }), ["late_p99", "late_p50"]],
  ];
  const welcome = h("div.card", { hidden: true }, lesson(
    "Nothing has come in yet. Schedule a message and watch it pass:",
    curl("POST", "v1/messages", { payload: { hello: "later" }, delay: "5s" })));

  root.append(
    h("div.head", {}, h("h1", {}, title), spans(() => draw())),
    welcome,
    h("section.tiles", { "aria-label": "Rates per second" }, tiles.map((one) => one.node)),
    h("section.pair", { "aria-label": "Standing" }, pending.node, late.node),
    h("section.charts", { "aria-label": "Charts" }, charts.map(([one]) => one.node)));

  let stats = null;
  function draw() {
    if (!stats) return;
    for (const one of tiles) one.draw(stats);
    drawPending(pending, stats);
    drawLateness(late, stats);
    welcome.hidden = Object.values(stats.states).some(Boolean) || Boolean(stats.totals.accepted);
    if (!history.times.length) return;
    const range = history.range(chosen);
    for (const [one, names] of charts) one.draw(history.columns(names), range);
  }
  const stop = onFigures((found) => { stats = found; draw(); });
  return () => {
    stop();
    for (const [one] of charts) one.destroy();
  };
}

const line = ([name, label]) => ({ label: label.toLowerCase(), hue: name, fill: name === "delivered" || name === "failed" });

function tile(name, label, meaning) {
  const number = h("b.figure", {}, "–");
  const total = h("span.soft", {}, "");
  const spark = sparkline(name);
  const node = h("article.tile", { "data-stage": name },
    h("h2", {}, label, h("span.unit", {}, " /s")), number, spark.node, h("p", { title: meaning }, total));
  node.style.setProperty("--hue", `var(--${name})`);
  return {
    node,
    draw(stats) {
      setText(number, rate(history.latest(name)));
      const stages = name === "failed" ? ["retry", "dead"] : [name];
      setText(total, `${count(stages.reduce((sum, stage) => sum + (stats.totals[stage] ?? 0), 0))} in all`);
      spark.draw(history.points[name]);
    },
  };
}

function big(label, hue) {
  const number = h("b.figure", {}, "–");
  const words = h("p.soft", {}, "");
  const spark = sparkline(hue);
  const node = h("article.tile.big", { "data-stage": hue }, h("h2", {}, label), number, spark.node, words);
  node.style.setProperty("--hue", `var(--${hue})`);
  return { node, number, words, spark };
}

function drawPending({ number, words, spark }, stats) {
  const routes = Object.values(stats.routes);
  const overdue = routes.reduce((sum, route) => sum + route.overdue, 0);
  const next = routes.map((route) => route.next_due).filter(Boolean).sort()[0];
  setText(number, count(stats.states.scheduled ?? 0));
  const parts = [`${count(overdue)} overdue`, `${count(stats.states.leased ?? 0)} being sent`];
  if (next) parts.push(`next due ${nextWords(next, stats.now)}`);
  setText(words, parts.join(" · "));
  spark.draw(history.points.pending, 900);
}

function nextWords(next, now) {
  const ahead = Date.parse(next) - Date.parse(now);
  return ahead <= 0 ? "now" : `in ${millis(ahead)}`;
}

function drawLateness({ number, words, spark }, stats) {
  const early = Object.values(stats.lateness).reduce((sum, one) => sum + one.early, 0);
  const [p50, p99] = [lastKnown("late_p50"), lastKnown("late_p99")];
  setText(number, p50 === null ? "–" : `${millis(p50)}`);
  setText(words, `p50 · p99 ${millis(p99)} · ${count(early)} left early`);
  spark.draw(history.points.late_p99, 900);
}

/** A second without releases has no lateness; the one before it still tells. */
function lastKnown(name) {
  return history.points[name].findLast((value) => value !== null) ?? null;
}

function spans(changed) {
  return h("fieldset.segments", {}, h("legend.hidden", {}, "Time shown"), SPANS.map(([seconds, label]) => h("label", {},
    h("input", { type: "radio", name: "span", value: seconds, checked: seconds === chosen, onchange() { chosen = seconds; changed(); } }),
    h("span", {}, label))));
}
