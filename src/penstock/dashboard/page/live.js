// The live figures, shared by all views: one stream, one history, and who wants to know.

import { get, refused } from "./api.js";
import { History } from "./history.js";
import { follow } from "./stream.js";

export const live = new EventTarget();
export const history = new History();
/** The newest figures of the fleet; null until the first have come. */
export const figures = { stats: null, before: null };

let stream = null;

const tell = (name, detail) => live.dispatchEvent(new CustomEvent(name, { detail }));

export function start() {
  stream?.stop();
  stream = follow("v1/events", {
    async open() {
      tell("link", { state: "live" });
      history.load(await get("v1/history"));
      if (figures.stats) tell("stats");
    },
    lost: (error, wait) => tell("link", { state: "lost", error, wait }),
    event(name, data) {
      if (name === "point") history.add(JSON.parse(data));
      if (name !== "stats") return;
      figures.before = figures.stats;
      figures.stats = JSON.parse(data);
      if (!document.hidden) tell("stats");
    },
  });
}

export function stop() {
  stream?.stop();
  stream = null;
}

document.addEventListener("visibilitychange", () => { if (!document.hidden && figures.stats) tell("stats"); });
refused.addEventListener("refused", stop);

/** Call `draw` now, if there are figures, and with every new ones; returns how to end it. */
export function onFigures(draw) {
  const handler = () => figures.stats && draw(figures.stats, figures.before);
  live.addEventListener("stats", handler);
  handler();
  return () => live.removeEventListener("stats", handler);
}
