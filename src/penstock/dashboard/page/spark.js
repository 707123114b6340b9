// A sparkline: the shape of the last minutes, without axes. The number beside it says the rest.

import { setAttribute, svg } from "./dom.js";

const WIDE = 100;
const HIGH = 24;
const LEAST = 60; // points: a curve that has just begun does not fill the whole width

export function sparkline(name) {
  const area = svg("path", { class: "area" });
  const line = svg("path", { class: "line" });
  const node = svg("svg", { class: "spark", viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", "aria-hidden": "true" }, area, line);
  node.style.setProperty("--hue", `var(--${name})`);
  return {
    node,
    draw(values, points = 120) {
      const shown = values.slice(-points);
      const first = shown.findIndex((value) => value !== null); // what is unknown is not drawn
      const known = first < 0 ? [] : shown.slice(first);
      const top = Math.max(1e-9, ...known.map((value) => value ?? 0));
      const room = Math.max(LEAST, Math.min(points, known.length));
      const x = (i) => ((i + room - known.length) / (room - 1)) * WIDE;
      const y = (value) => HIGH - 1 - ((value ?? 0) / top) * (HIGH - 3);
      const path = known.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("");
      setAttribute(line, "d", path);
      setAttribute(area, "d", path ? `${path}L${WIDE} ${HIGH}L${x(0).toFixed(1)} ${HIGH}Z` : "");
    },
  };
}
