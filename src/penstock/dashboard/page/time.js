// Moments: shown in the viewer's own zone with the exact UTC moment beside it.

import { h } from "./dom.js";

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const minute = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });
const year = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** 14:16:09 today, "Tue 3 Mar 14:16:09" on other days. */
export function moment(text) {
  const at = new Date(text);
  const now = new Date();
  const time = clock.format(at);
  if (at.toDateString() === now.toDateString()) return time;
  const date = at.getFullYear() === now.getFullYear() ? day : year;
  return `${date.format(at)} ${time}`;
}

const STEPS = [[86_400, "d"], [3600, "h"], [60, "m"], [1, "s"]];

/** 90 → "1m 30s"; the two biggest parts. */
export function span(seconds) {
  let rest = Math.round(Math.abs(seconds));
  const parts = [];
  for (const [size, unit] of STEPS) {
    const number = Math.floor(rest / size);
    if (number || (unit === "s" && !parts.length)) parts.push(`${number}${unit}`);
    else if (parts.length) break;
    rest -= number * size;
  }
  return parts.slice(0, 2).join(" ");
}

/** "in 5m", "3s ago". */
export function relative(text, now = Date.now()) {
  const seconds = (new Date(text).getTime() - now) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? `in ${span(seconds)}` : `${span(seconds)} ago`;
}

/** A <time>: local and, on hover and for machines, exact. */
export function timeOf(text, { both = false } = {}) {
  if (!text) return h("span.soft", {}, "–");
  const shown = both ? `${moment(text)} · ${relative(text)}` : moment(text);
  return h("time", { datetime: text, title: text }, shown);
}

export const axisMinute = (seconds) => minute.format(new Date(seconds * 1000));
export const axisSecond = (seconds) => clock.format(new Date(seconds * 1000));
export const axisDay = (seconds) => day.format(new Date(seconds * 1000));

/** What <input type=datetime-local> says, as the API wants it; "" → undefined. */
export const fromInput = (value) => (value ? new Date(value).toISOString() : undefined);

/** The API's moment as <input type=datetime-local> wants it. */
export function toInput(text) {
  if (!text) return "";
  const at = new Date(text);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
