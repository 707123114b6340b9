// A sparkline: the shape of the last minutes, without axes. The number beside it says the rest.

import { setAttribute, svg } from "./dom.js";

const WIDE = 100;
const HIGH = 24;

export function sparkline(name) {
  const area = svg("path", { class: "area" });
  const line = svg("path", { class: "line" });
  const node = svg("svg", { class: "spark", viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", "aria-hidden": "true" }, area, line);
  node.style.setProperty("--hue", `var(--${name})`);
  return {
    node,
    draw(values, points = 120) {
      const shown = values.slice(-points);
      const top = Math.max(1e-9, ...shown.map((value) => value ?? 0));
      const x = (i) => ((i + points - shown.length) / (points - 1)) * WIDE;
      const y = (value) => HIGH - 1 - ((value ?? 0) / top) * (HIGH - 3);
      const path = shown.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("");
      setAttribute(line, "d", path);
      setAttribute(area, "d", path ? `${path}L${WIDE} ${HIGH}L${x(0).toFixed(1)} ${HIGH}Z` : "");
    },
  };
}
