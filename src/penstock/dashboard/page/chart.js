// Charts by uPlot, in the page's colors, with a legend of our own that reads out the cursor.

import { h, setText } from "./dom.js";
import { color, rem } from "./palette.js";
import { axisDay, axisMinute, axisSecond } from "./time.js";

const uPlot = globalThis.uPlot;
const MINUTE = 60;
const HOUR = 3600;

/** series: [{name, label, hue, fill?}]; format: value → text.
 *  Returns {node, draw(columns, [from, to]), destroy()}. */
export function chart({ title, series, format, axis = format, height = 13, bars = false, empty = "" }) {
  const values = series.map(() => h("b", {}, "–"));
  const at = h("span.at");
  const legend = h("div.legend", { "aria-hidden": "true" },
    series.map((one, i) => key(one, values[i])), at);
  const canvas = h("div.canvas", { role: "img", "aria-label": title });
  const nothing = h("p.nothing.soft", { hidden: true }, empty);
  const node = h("figure.chart", {}, h("figcaption", {}, h("h2", {}, title), legend), canvas, nothing);
  let columns = null;
  let plot = null;

  const size = () => ({ width: Math.max(120, canvas.clientWidth), height: tall(height) });
  const read = () => {
    const hovered = plot?.cursor.idx;
    const index = hovered ?? columns[0].length - 1;
    series.forEach((one, i) => setText(values[i], bars && hovered == null ? "" : format(one.value ? one.value(index) : columns[i + 1][index])));
    setText(at, hovered == null ? "" : axisSecond(columns[0][hovered]));
  };

  function draw(wanted, range) {
    columns = wanted;
    const some = columns.slice(1).some((column) => column.some((value) => value));
    nothing.hidden = some || !empty;
    if (!plot) {
      if (!canvas.clientWidth) return;
      plot = new uPlot(options({ series, axis, bars, size: size(), read }), columns, canvas);
    } else {
      plot.setData(columns, false);
    }
    plot.setScale("x", { min: range[0], max: range[1] });
    read();
    canvas.setAttribute("aria-label", `${title}: ${series.map((one, i) => `${one.label} ${values[i].textContent}`).join(", ")}`);
  }

  const watch = new ResizeObserver(() => plot?.setSize(size()));
  watch.observe(canvas);
  const redraw = () => plot?.redraw(false);
  document.documentElement.addEventListener("themechange", redraw);
  return {
    node,
    draw,
    destroy() {
      watch.disconnect();
      document.documentElement.removeEventListener("themechange", redraw);
      plot?.destroy();
    },
  };
}

/** At least `height` rem; on a tall screen its share of the room. */
function tall(height) {
  const unit = rem();
  const share = (0.45 * innerHeight) / unit - 14.6;
  return Math.round(unit * height * Math.min(2, Math.max(1, share / 13)));
}

function key(one, value) {
  const swatch = h("i");
  swatch.style.setProperty("--hue", `var(--${one.hue})`);
  return h("span.key", {}, swatch, one.label, " ", value);
}

function options({ series, axis, bars, size, read }) {
  const unit = rem();
  const font = `${Math.round(unit * 0.75)}px ${getComputedStyle(document.body).fontFamily}`;
  const common = { stroke: () => color("soft"), font, ticks: { show: false } };
  const grid = { stroke: () => color("line"), width: 1 };
  return {
    ...size,
    padding: [unit * 0.5, unit * 1.7, 0, 0], // the last label of the time axis needs the room
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: bars ? { show: false } : { size: 6 } },
    scales: {
      x: { time: true },
      y: { range: (_, low, high) => [0, high > 0 ? high * 1.12 : 1] },
    },
    axes: [
      { ...common, grid: { show: false }, size: unit * 1.6, space: unit * 4.5, values: (_, splits, _a, _s, step) => splits.map((one) => label(one, step)) },
      { ...common, grid, size: unit * 3.6, space: unit * 2.2, values: (_, splits) => splits.map(axis) },
    ],
    series: [{}, ...series.map((one) => line(one, bars, unit))],
    hooks: { setCursor: [() => read()] },
  };
}

function line(one, bars, unit) {
  if (bars) {
    return { fill: () => color(one.hue), width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.78, unit * 3] }) };
  }
  return {
    stroke: () => color(one.hue),
    fill: one.fill ? () => color(one.hue, 0.14) : undefined,
    width: 1.75,
    points: { show: false },
  };
}

function label(seconds, step) {
  if (step < MINUTE) return axisSecond(seconds);
  const at = new Date(seconds * 1000);
  if (step >= HOUR && at.getHours() === 0 && at.getMinutes() === 0) return axisDay(seconds);
  return axisMinute(seconds);
}
