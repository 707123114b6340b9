// Forecast: what is coming due, by route, before it hits a sink.

import { get } from "../api.js";
import { chart } from "../chart.js";
import { h } from "../dom.js";
import { curl, lesson } from "../empty.js";
import { noticePlace } from "../notice.js";
import { compact, count } from "../numbers.js";
import { MOST_ROUTES, routeColor } from "../palette.js";
import { poll } from "../poll.js";
import { table } from "../table.js";
import { moment } from "../time.js";

export const title = "Forecast";

const SECONDS = 5;
const OTHERS = "other routes";

export function mount(root) {
  const trouble = noticePlace();
  const places = { minutes: h("div"), hours: h("div") };
  const sums = h("section.tiles", { "aria-label": "In sum" });
  const empty = h("div.card", { hidden: true }, lesson(
    "Nothing is waiting. What is scheduled shows here, by the minute and the hour it comes due:",
    curl("POST", "v1/messages", { payload: 1, delay: "20m" })));
  const numbers = table({
    caption: "The next hours as numbers",
    key: (row) => row.from,
    columns: [
      { label: "Hour", text: (row) => moment(row.from).slice(0, -3) },
      { label: "Messages", number: true, text: (row) => count(row.sum) },
      { label: "By route", text: (row) => row.words },
    ],
  });
  root.append(h("div.head", {}, h("h1", {}, title)), trouble, empty, sums,
    h("section.charts.tall", { "aria-label": "Charts" }, places.minutes, places.hours),
    h("details.card", {}, h("summary", {}, "The next hours as numbers"), numbers.node));

  const charts = {};
  let names = null;

  function draw(found) {
    const routes = biggest(found);
    if (routes.join("\n") !== names) {
      names = routes.join("\n");
      for (const [which, step, label] of [["minutes", 60, "The next hour, per minute"], ["hours", 3600, "The next days, per hour"]]) {
        charts[which]?.destroy();
        charts[which] = stacked(label, routes, step);
        places[which].replaceChildren(charts[which].node);
      }
    }
    charts.minutes.show(found.minutes);
    charts.hours.show(found.hours);
    sums.replaceChildren(...summary(found));
    const rows = found.hours.map(({ from, routes: by }) => ({ from, sum: total(by), words: words(by) })).filter((row) => row.sum);
    numbers.update(rows);
    empty.hidden = rows.length > 0 || total(found.later) > 0;
  }

  const asking = poll(SECONDS, trouble, async (signal) => draw(await get("v1/forecast", signal)));
  return () => {
    asking.stop();
    Object.values(charts).forEach((one) => one.destroy());
  };
}

const total = (by) => Object.values(by).reduce((sum, number) => sum + number, 0);
const words = (by) => Object.entries(by).filter(([, number]) => number).map(([route, number]) => `${route} ${count(number)}`).join(" · ");

/** The routes with most to come, by name; the rest together. */
function biggest({ hours, later }) {
  const sums = new Map();
  for (const by of [...hours.map((hour) => hour.routes), later]) {
    for (const [route, number] of Object.entries(by)) sums.set(route, (sums.get(route) ?? 0) + number);
  }
  const ordered = [...sums].sort((a, b) => b[1] - a[1]).map(([route]) => route);
  if (ordered.length <= MOST_ROUTES) return ordered.sort();
  return [...ordered.slice(0, MOST_ROUTES - 1).sort(), OTHERS];
}

/** Bars are drawn over each other, the highest sums first, so that what shows of each is its share. */
function stacked(label, routes, step) {
  let own = [];
  const order = routes.map((_, i) => i).reverse();
  const one = chart({
    title: label,
    format: count,
    axis: compact,
    bars: true,
    height: 16,
    empty: "Nothing comes due in this time.",
    series: order.map((i) => ({ label: routes[i], hue: routeColor(i), value: (index) => own[i]?.[index] })),
  });
  return {
    ...one,
    show(spans) {
      const times = spans.map((span) => Date.parse(span.from) / 1000 + step / 2);
      own = routes.map((route) => spans.map((span) => (route === OTHERS ? others(span.routes, routes) : span.routes[route] ?? 0)));
      const sums = [];
      own.forEach((column, i) => sums.push(column.map((number, at) => number + (sums[i - 1]?.[at] ?? 0))));
      const first = times[0] - step / 2;
      one.draw([times, ...order.map((i) => sums[i])], [first, first + step * spans.length]);
    },
  };
}

const others = (by, known) => Object.entries(by).reduce((sum, [route, number]) => sum + (known.includes(route) ? 0 : number), 0);

function summary(found) {
  const within = (spans, number) => spans.slice(0, number).reduce((sum, span) => sum + total(span.routes), 0);
  const sums = [
    ["Next 5 minutes", within(found.minutes, 5)], ["Next hour", within(found.minutes, 60)],
    ["Next 24 hours", within(found.hours, 24)], ["Next 7 days", within(found.hours, 168)], ["Later", total(found.later)],
  ];
  return sums.map(([label, number]) => h("article.tile", {},
    h("h2", {}, label), h("b.figure", {}, compact(number)),
    h("p.soft", {}, found.exact ? "messages" : "messages, about")));
}
